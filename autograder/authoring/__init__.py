"""From a lesson's text to all that is built from it: `python -m autograder.authoring [LESSON ...]`.

`source` reads and refuses, `notebook` writes and executes the solved notebook, `export` makes the
module of its answers, `release` has nbgrader write the student's notebook.
"""
