"""What grading lesson 06 takes."""
