"""What grading lesson 15 takes."""
