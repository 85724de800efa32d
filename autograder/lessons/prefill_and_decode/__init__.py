"""What grading lesson 04 takes."""
