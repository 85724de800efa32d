"""The students' command line: `python -m course COMMAND`; without one, it lists the commands."""

from __future__ import annotations

import sys

COMMANDS = {
    "hand-in": "run a lesson from top to bottom and say whether it is ready to hand in: hand-in 03",
    "lab": "open the lessons in JupyterLab, as `make lab` does; its options go on to it",
    "progress": "list the lessons, and which checks passed when",
}
UNKNOWN = 2
INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """Run one command. Returns the exit code: 0 when all is well."""
    command, *rest = arguments or [""]
    try:
        if command == "hand-in":
            from course.handing_in.command import main as hand_in

            return hand_in(rest)
        if command == "lab":
            from course.files.lab import main as lab

            return lab(rest)
        if command == "progress":
            from course.files.progress_page import main as progress

            return progress(rest)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    lines = "\n".join(f"  {name:<10} {purpose}" for name, purpose in COMMANDS.items())
    print(f"python -m course COMMAND\n\n{lines}")
    if command in ("", "-h", "--help"):
        return 0
    print(f"\nThere is no command {command!r}.", file=sys.stderr)
    return UNKNOWN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
