"""However a file or a reply is made, reading it does not cost the judge more memory than there is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from autograder.assignment import MAX_FILE, BadSubmission, read_cells, text_of
from lessons import ROOT

MB = 10**6
ALLOWED = 900 * MB
"""Of memory, for the judge that reads one hostile file."""
measured = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory is read from Linux's /proc"
)
NOTEBOOK = b'{"cells": [], "metadata": {}, "more": [%s]}'

HOSTILE_JSON = {
    "empty lists": b"[],",
    "empty dicts": b"{},",
    "small dicts": b'{"a":1},',
    "short texts": b'"ab",',
    "lists of lists": b"[[],[]],",
    "numbers": b"1.5,",
}


def peak(program: str, *arguments: object) -> tuple[str, int]:
    """Run a Python program: what it printed, and the most memory that it held, in bytes."""
    told = "\nprint(*(line for line in open('/proc/self/status') if 'VmHWM' in line), end='')"
    done = subprocess.run(
        [sys.executable, "-c", program + told, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    *said, most = done.stdout.splitlines()
    return "\n".join(said), int(most.split()[1]) * 1024


READ = """
import sys
from pathlib import Path
from autograder.assignment import BadSubmission, read_cells
try:
    print("read", len(read_cells(Path(sys.argv[1]))[1]))
except BadSubmission as error:
    print(error)
"""


@pytest.mark.slow
@measured
@pytest.mark.parametrize("kind", HOSTILE_JSON)
def test_a_file_of_ever_so_many_values_is_refused_before_they_are_built(kind, tmp_path):
    unit = HOSTILE_JSON[kind]
    file = tmp_path / "start.ipynb"
    file.write_bytes(NOTEBOOK % (unit * (120 * MB // len(unit)) + b"1"))
    said, most = peak(READ, file)
    assert said == "start.ipynb contains more numbers and lists than the judge reads"
    assert most < ALLOWED


def table() -> str:
    return "\n".join(",".join(str(n * m) for m in range(40)) for n in range(1000)) * 330


HONEST_OUTPUTS = {
    "text full of commas": lambda: {"text": table()},
    "lines of text": lambda: {"text": table().splitlines(keepends=True)},
    "a picture": lambda: {"data": {"image/png": "iVBORw0KGgo" * (60 * MB // 11)}},
    "numbers of charts": lambda: {"data": {"plotly": [n / 7 for n in range(3_000_000)]}},
    "records of charts": lambda: {"data": [{"x": n / 7, "y": n / 3} for n in range(1_100_000)]},
    "emoji": lambda: {"text": "\U0001f600" * (60 * MB // 4)},
}


@pytest.mark.slow
@measured
@pytest.mark.parametrize("kind", HONEST_OUTPUTS)
def test_an_honest_notebook_of_60_mb_is_read(kind, tmp_path):
    file = tmp_path / "start.ipynb"
    cell = {"cell_type": "code", "source": "1", "outputs": [HONEST_OUTPUTS[kind]()]}
    text = json.dumps({"cells": [cell], "metadata": {}}, ensure_ascii=False)
    file.write_text(text, encoding="utf-8")
    assert 50 * MB < file.stat().st_size < MAX_FILE
    assert peak(READ, file)[0] == "read 1"


DECODE = """
import sys
from autograder.wire import LENGTH, MAX_BYTES, WireError, decode
unit = sys.argv[1].encode()
text = b"[" + unit * ((MAX_BYTES - 100) // len(unit)) + b"1]"
body = LENGTH.pack(len(text)) + text
try:
    decode(LENGTH.pack(len(body)) + body)
except WireError as error:
    print(error)
"""


@pytest.mark.slow
@measured
@pytest.mark.parametrize("unit", ["[],", '{"dict":{}},', "1,", '{"tuple":[]},'])
def test_a_reply_of_ever_so_many_values_is_refused_before_they_are_built(unit):
    said, most = peak(DECODE, unit)
    assert "commas and brackets are more than" in said
    assert most < 400 * MB


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("x = '\ud83d'", "x = '\ufffd'"),
        (["x = '\ud83d", "\ude00'"], "x = '\U0001f600'"),
        ("\ude00", "\ufffd"),
        ("naïve 😀", "naïve 😀"),
        (None, ""),
    ],
)
def test_half_a_character_becomes_what_a_browser_makes_of_it(found, expected):
    assert text_of(found) == expected


def test_a_text_is_never_counted_as_values(tmp_path, monkeypatch):
    monkeypatch.setattr("autograder.assignment.MAX_VALUES", 2_000)
    file = tmp_path / "start.ipynb"

    def read(value: object) -> int:
        file.write_text(json.dumps({"cells": [value]}), encoding="utf-8")
        return len(read_cells(Path(file))[1])

    assert read('[[[,,,{{{"\\' * 1000) == 1
    with pytest.raises(BadSubmission, match="more numbers and lists"):
        read([1] * 100)
