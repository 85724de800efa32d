"""What grading lesson 10 takes."""
