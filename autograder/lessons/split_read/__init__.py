"""What grading lesson 09 takes."""
