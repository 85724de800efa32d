"""What grading lesson 07 takes."""
