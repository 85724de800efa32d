"""What students and instructors see of a judged submission."""
