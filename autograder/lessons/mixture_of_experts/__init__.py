"""What grading lesson 16 takes."""
