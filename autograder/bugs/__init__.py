"""The museum: known wrong answers, one module a lesson. Each proves a check and names a mistake."""
