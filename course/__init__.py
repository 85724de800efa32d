"""Second Token: what the lessons import.

Start at `course.model` (the mini-GPT), `course.minigpt` (what the lessons build, one module a
lesson) and `course.checks` (the checks that a student runs). `python -m course` lists the commands.
"""


def hand_in() -> None:
    """Run this notebook from top to bottom in a fresh kernel, and say whether it is ready to hand in.

    Where no student has the notebook open (grading, builds, tests, `hand-in` itself) it does nothing.
    """
    from course.handing_in.in_notebook import hand_in_this_notebook

    hand_in_this_notebook()


def progress() -> None:
    """Draw the lessons: which visible checks passed when, and what is next."""
    from course.files.progress_page import show_progress

    show_progress()
