"""The judge: everything that stays with the instructor."""
