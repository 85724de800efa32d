"""What grading lesson 13 takes."""
