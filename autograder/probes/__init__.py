"""What runs in the student's process: the probes of the hidden checks, one module a lesson.

Each module holds PROBES, by check name, and imports nothing but `course`, torch and NumPy, for it is
copied to where `autograder` is not. A probe holds no expected value and decides nothing.
"""
