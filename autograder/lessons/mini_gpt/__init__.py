"""What grading lesson 01 takes."""
