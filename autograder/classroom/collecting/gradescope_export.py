"""Read from Gradescope's "Export Submissions" who handed in which folder, and when.

    assignment_4711_export/submission_metadata.yml
    assignment_4711_export/submission_33000/kv_cache.ipynb

A group's folder has several submitters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import yaml

from autograder.classroom.collecting.archives import Archive, Entry, Refused, Submitter, pieces

METADATA = "submission_metadata.yml"
_EXPORT = re.compile(r"assignment_\d+_export")
"""The folder around everything."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def with_submitters(archive: Archive) -> Archive:
    """Complete an archive by its submitters and times, if it is Gradescope's.

    Raises:
        Refused: it is, but what says so cannot be read.
    """
    metadata = next((entry for entry in archive.entries if _is_metadata(entry)), None)
    if metadata is None:
        return archive
    depth = len(metadata.parts) - 1  # the folder around everything
    try:
        folders: Mapping[str, Any] = yaml.load(
            b"".join(pieces(METADATA, metadata)).decode(), _Loader
        )
        submitters = {name: _submitters(folder) for name, folder in folders.items()}
        times = {name: folder.get(":created_at") for name, folder in folders.items()}
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, TypeError) as error:
        why = " ".join(str(error).split())
        raise Refused(f"{archive.name}: {METADATA} cannot be read: {why}") from None
    entries = [
        _placed(entry, entry.parts[depth:], times)
        for entry in archive.entries
        if entry is not metadata and len(entry.parts) > depth
    ]
    return replace(archive, entries=entries, submitters=submitters)


def _is_metadata(entry: Entry) -> bool:
    """Tell Gradescope's own file from one of that name that a student handed in, on any platform."""
    *around, name = entry.parts
    return name == METADATA and all(map(_EXPORT.fullmatch, around)) and len(around) <= 1


def _submitters(folder: Mapping[str, Any]) -> tuple[Submitter, ...]:
    return tuple(
        Submitter(*(str(person.get(field) or "") for field in (":name", ":email", ":sid")))
        for person in folder[":submitters"]
    )


def _placed(entry: Entry, parts: tuple[str, ...], times: Mapping[str, Any]) -> Entry:
    """Return an entry without the folder around everything, with the time of its hand-in."""
    time = times.get(parts[0])
    if not isinstance(time, datetime):
        return replace(entry, parts=parts)
    return replace(entry, parts=parts, time=time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC))
