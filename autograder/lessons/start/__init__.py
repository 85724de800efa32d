"""What grading lesson 00 takes."""
