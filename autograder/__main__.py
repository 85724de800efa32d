"""The judge's command line: `autograder COMMAND`; `--help` lists the commands."""

from __future__ import annotations

import argparse
import sys

from autograder import doctor
from autograder.fork_server import ForkServer


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 when all is well."""
    parser = argparse.ArgumentParser(prog="autograder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="try every barrier of the sandbox on this machine")
    return {"doctor": _doctor}[parser.parse_args(arguments).command]()


def _doctor() -> int:
    print("Cold start: every process imports what it needs.")
    findings = doctor.doctor()
    print(doctor.report(findings))
    if all(finding.held for finding in findings):
        print("Warm start: every process is forked from one that has imported torch.")
        with ForkServer() as server:
            findings = doctor.doctor(server.popen)
        print(doctor.report(findings))
    if all(finding.held for finding in findings):
        print("The sandbox is whole.")
        return 0
    print(doctor.ways_out())
    return 1


if __name__ == "__main__":
    sys.exit(main())
