"""What grading lesson 05 takes."""
