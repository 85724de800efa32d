"""Points nbgrader at the folders of the course. Nothing else lives here."""

from pathlib import Path

c = get_config()  # noqa: F821 (nbgrader provides it)

c.CourseDirectory.course_id = "second-token"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "lessons"
c.CourseDirectory.submitted_directory = "grading/submitted"
c.CourseDirectory.autograded_directory = "grading/autograded"
c.CourseDirectory.feedback_directory = "grading/feedback"
c.CourseDirectory.solution_directory = "grading/solution"
# SQLite makes the gradebook, but not the folder that it stands in.
grading = Path(__file__).resolve().parent / "grading"
grading.mkdir(exist_ok=True)
c.CourseDirectory.db_url = f"sqlite:///{grading / 'gradebook.db'}"
# The lesson's text stays with the authors: nbgrader would copy it into the release.
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "*.py"]
c.ClearSolutions.enforce_metadata = True
# What was handed in is read, judged and laid out by the judge. No code of a student runs in
# nbgrader's process, and of nbgrader's own steps only those are left that read points.
c.Autograde.exporter_class = "autograder.nbgrader_steps.Judge"
c.Autograde.sanitize_preprocessors = []
c.Autograde.autograde_preprocessors = [
    "autograder.classroom.save_points.SavePoints",
    "autograder.classroom.due_dates.GrantExtensions",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
# Being late costs nothing unless you say so: percent of the lesson's points for each day that has begun.
c.AssignLatePenalties.plugin_class = "autograder.classroom.due_dates.LatePenalty"
c.LatePenalty.percent_a_day = 0
c.LatePenalty.grace_minutes = 0
c.LatePenalty.late_days = 0
c.LatePenalty.largest_percent = 100
# Feedback begins with the questions by name, points and messages.
c.GenerateFeedback.exporter_class = "autograder.report.feedback_page.FeedbackPage"
# nbgrader clears outputs, but not the state of widgets.
c.NotebookExporter.preprocessors = ["autograder.nbgrader_steps.drop_execution_metadata"]
