"""What grading lesson 02 takes."""
