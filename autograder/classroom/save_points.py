"""Save the points of a submission all at once: a step of `nbgrader autograde`."""

from __future__ import annotations

from typing import Any

import nbformat
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor, SaveAutoGrades


class SavePoints(SaveAutoGrades):
    """nbgrader's step, in one transaction. It would commit grade by grade, and of a submission at which
    the grader was killed, the gradebook would hold some points and not others."""

    def preprocess(
        self, notebook: nbformat.NotebookNode, resources: dict[str, Any]
    ) -> tuple[nbformat.NotebookNode, dict[str, Any]]:
        """Save the points that stand in a graded notebook, which stays as it is."""
        names = resources["nbgrader"]
        self.notebook_id, self.assignment_id = names["notebook"], names["assignment"]
        self.student_id = names["student"]
        with Gradebook(names["db_url"]) as self.gradebook:
            session = self.gradebook.db
            commit, session.commit = session.commit, session.flush
            notebook, resources = NbGraderPreprocessor.preprocess(self, notebook, resources)
            commit()
        return notebook, resources
