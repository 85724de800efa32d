"""The instructors' and authors' command line: `autograder COMMAND`; `--help` lists the commands."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from importlib.metadata import requires

COMMANDS = {
    "book": ("autograder.authoring.book", "write the course as a static site"),
    "build": (
        "autograder.authoring.build",
        "build notebooks and modules whose lesson text changed",
    ),
    "cheapest": (
        "autograder.cheapest",
        "judge the cheapest wrong function for each check",
    ),
    "collect": (
        "autograder.classroom.collecting.collect",
        "collect what was handed in, from archives of platforms",
    ),
    "diagnose": (
        "autograder.diagnose",
        "judge single wrong answers, and print what their students would be told",
    ),
    "doctor": ("autograder.sandbox.doctor", "try every barrier of the sandbox on this machine"),
    "export": (
        "autograder.classroom.exporting.export",
        "export points and code for spreadsheets and platforms",
    ),
    "grade": ("autograder.classroom.grade", "grade a class, and say who has no grade and why"),
    "mutants": (
        "autograder.authoring.mutants",
        "find wrong answers that no hidden check catches",
    ),
    "new": ("autograder.authoring.new", "lay out a new lesson with all its files"),
    "publish": (
        "autograder.publishing.publish",
        "write the students' repository, without answers to lessons that are open",
    ),
    "report": (
        "autograder.classroom.reporting.report",
        "write one page about a class and a lesson",
    ),
    "return": (
        "autograder.classroom.exporting.return_feedback",
        "write everybody's feedback for the platform that handed the work out, or as mail",
    ),
    "simulate": (
        "autograder.classroom.simulation.simulate",
        "simulate a class whose results are known in advance",
    ),
    "museum": ("autograder.diagnosis.museum_page", "write which check catches which known mistake"),
    "why": ("autograder.classroom.why", "say why a submission has its points"),
}
"""Each command's module, which has a `main(arguments)` that returns the exit code, and its purpose."""


INTERRUPTED = 130
"""The exit code after Ctrl-C, as a shell gives it."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 when all is well."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="autograder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, purpose) in COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    chosen, rest = parser.parse_known_args(arguments)
    module, _ = COMMANDS[chosen.command]  # imported only now: some commands need more than others
    try:
        return importlib.import_module(module).main(rest)
    except ModuleNotFoundError as error:
        print(_what_is_missing(chosen.command, error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED


def _what_is_missing(command: str, error: ModuleNotFoundError) -> str:
    """Say in one line what has to be installed for a command.

    Raises:
        ModuleNotFoundError: what is missing is no package that an extra of ours brings.
    """
    name = (error.name or "").partition(".")[0]
    for requirement in requires("second-token") or ():
        package, _, marker = requirement.partition(";")
        extra = re.search(r"extra == ['\"](\w+)['\"]", marker)
        if extra and re.match(r"[\w.-]+", package)[0].replace("-", "_") == name:
            return (
                f"autograder {command} needs {name}, which is not installed here: "
                f"pip install -c constraints.txt -e '.[{extra[1]}]'"
            )
    raise error


if __name__ == "__main__":
    sys.exit(main())
