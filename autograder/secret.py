"""Keep the grader's secret, from which the seeds of all challenges are derived.

Anyone who knows it can compute the inputs of every hidden check. It is drawn once and then kept, so
that a submission gets the same grade again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from pathlib import Path

BYTES = 32


def read_secret(path: Path) -> bytes:
    """Read the secret from a file that only its owner can read; create it if it is missing.

    Raises:
        PermissionError: others can read the file.
        ValueError: it is too short to be a secret.
    """
    if not path.exists():
        _make(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        raise PermissionError(f"{path} has mode {mode:o}, so others can read it: chmod 600 {path}")
    secret = path.read_bytes()
    if len(secret) < BYTES:
        raise ValueError(f"{path} holds {len(secret)} bytes; a secret has {BYTES}")
    return secret


def _make(path: Path) -> None:
    """Write a new secret, whole or not at all; if several processes do so at once, one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent)  # which nobody else can read
    try:
        with open(fd, "wb") as file:
            file.write(secrets.token_bytes(BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)
