"""What grading lesson 17 takes."""
