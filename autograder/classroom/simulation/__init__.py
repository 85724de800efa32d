"""A class that never was: what its students hand in, and what each of them has to get for it."""
