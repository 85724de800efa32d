"""What grading lesson 08 takes."""
