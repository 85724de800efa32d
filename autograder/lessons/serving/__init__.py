"""What grading lesson 11 takes."""
