"""What grading lesson 12 takes."""
