"""Honest work, saved under a kernel that is not installed here, with a program of its own.

points: 10
start: solved
"""


def submit(notebook, folder):
    notebook.metadata["kernelspec"] = {
        "name": "../../bin/sh",
        "display_name": "Shell",
        "language": "bash",
        "argv": ["/bin/sh", "-c", "touch /tmp/got"],
    }
    notebook.metadata["language_info"] = {"name": "bash", "version": "5"}
    return notebook
