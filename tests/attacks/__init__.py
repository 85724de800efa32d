"""Hostile and clumsy submissions, one small file each, by family.

A file begins with its story, one line or two, and then with what must come of it:

    points: 0            exactly so many; "at most 2" where less is as good
    lesson: 03-kv-cache  00-start where nothing is said
    start: solved        the notebook begins with every answer written; else with none
    state: STUDENT_FAULT SCORE where nothing is said
    says: words          which stand in the report: a message, the reason, or what was printed
    stops: words         which stand in the report on the cell; else no cell may stop

What follows is the text of a cell that is added to the end of the notebook, unless the file defines
`submit(notebook, folder)`. That one gets the notebook to begin with, and the folder that is handed in; it
returns the content of the file, or None when it wrote everything itself. But in the family `notebook`,
the graded cells are put behind all others, so that everything runs before a question is asked.

FACTS holds what the harness has laid out to be found (see `bait.py`). An attack prints what it got
and should not have got after the word GOT.
"""
