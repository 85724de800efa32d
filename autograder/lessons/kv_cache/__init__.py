"""What grading lesson 03 takes."""
