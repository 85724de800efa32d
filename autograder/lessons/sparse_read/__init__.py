"""What grading lesson 14 takes."""
