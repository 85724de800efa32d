"""What a known answer replies is found out once, and again exactly where something changed."""

import importlib
import os
import subprocess
import sys
from collections import defaultdict

import pytest
from changing import change
from submissions import ORDER

from autograder import run_record, wire
from autograder.lessons import find, hidden_checks
from autograder.lessons.assembly import answer_cells
from autograder.lessons.exhibits import bugs_of
from autograder.run_record import RunRecord, Store, decide, digest_of_questions, key_of
from course.checks.check import checks_in
from lessons import ROOT

CHECK = "start.flops_of_any_product"
__all__ = ["change"]


def test_a_reply_is_found_out_once_and_kept_for_others(tmp_path, monkeypatch):
    check = find(CHECK)
    bug = next(bug for bug in bugs_of("start") if bug.check == CHECK)
    reply = RunRecord(tmp_path).ask("start", bug.answer, check, 3)
    assert decide(check, check.challenge(3), reply).score < 1
    monkeypatch.setattr(run_record, "run", None)
    assert RunRecord(tmp_path).ask("start", bug.answer, check, 3) == reply
    with pytest.raises(TypeError):
        RunRecord(tmp_path).ask("start", bug.answer, check, 4)


@pytest.mark.parametrize("data", [b"", b"half a file"])
def test_what_cannot_be_read_is_found_out_again(tmp_path, data):
    reply = RunRecord(tmp_path).ask("start", {}, find(CHECK), 0)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_bytes(data)
    assert RunRecord(tmp_path).ask("start", {}, find(CHECK), 0) == reply
    assert file.read_bytes() != data


@pytest.mark.parametrize("lesson", ORDER)
def test_checks_that_share_replies_draw_and_probe_the_same(lesson):
    """A key that saw too little would give one check the replies to another one's challenge."""
    visible = checks_in(importlib.import_module(f"course.checks.{lesson}"))
    sharing = defaultdict(list)
    for check in (*hidden_checks(lesson).values(), *visible.values()):
        sharing[digest_of_questions(check)].append(check)
    for checks in sharing.values():
        for seed in (0, 1):
            assert len({wire.encode(check.challenge(seed)) for check in checks}) == 1


def keys(lesson: str) -> dict[str, str]:
    cells = answer_cells(lesson, {})
    return {name: key_of(cells, check, 0) for name, check in hidden_checks(lesson).items()}


@pytest.mark.parametrize(
    ("file", "old", "again"),
    [
        (
            "course/checks/quantized_cache/packing.py",
            "rng.integers(0, 16",
            {"two_codes_share_a_byte"},
        ),
        ("course/checks/recorder.py", "LARGEST = 10**7", "all"),
        ("course/checks/quantized_cache/packing.py", "Which of the two comes first", set()),
        ("course/plots/style.py", "def ", set()),
        ("course/checks/kv_cache/forward.py", "def ", set()),
        ("autograder/student.py", "def see_one_core(", set()),
    ],
    ids=[
        "one check",
        "what holds the house rules",
        "a verdict",
        "a plot",
        "another lesson",
        "the student's process",
    ],
)
def test_a_changed_line_asks_again_exactly_what_rests_on_it(change, file, old, again):
    before = keys("quantized_cache")
    change(file, old, old.replace(" ", "  "))
    after = keys("quantized_cache")
    expected = set(before) if again == "all" else again
    assert {name for name in before if after[name] != before[name]} == expected


def test_another_answer_another_seed_and_another_library_have_keys_of_their_own(monkeypatch):
    check = find(CHECK)
    cells = answer_cells("start", {})
    found = {key_of(cells, check, 0), key_of(cells, check, 1), key_of(cells[:-1], check, 0)}
    monkeypatch.setattr(run_record, "_versions", lambda: ["another Python"])
    found.add(key_of(cells, check, 0))
    assert len(found) == 4


def test_a_store_keeps_what_was_used_last_and_no_more_than_its_limit(tmp_path):
    store = Store(tmp_path)
    for number in range(20):
        store.put(f"{number:02}", bytes(range(256)) * 4)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert store.get("00")  # used once more
    Store(tmp_path, limit=size)
    assert all(store.get(f"{number:02}") for number in range(20))
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))  # long ago: a file system's clock may stand still between two calls
    for number in range(0, 20, 2):
        store.get(f"{number:02}")
    Store(tmp_path, limit=size // 2)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in kept) <= size // 2
    assert {int(path.name) % 2 for path in kept} == {0}


def test_many_processes_may_use_a_store_at_once(tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from autograder.run_record import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for number in list(range(60)) * 5:\n"
        "    value = store.get(f'key {number}')\n"
        "    assert value in (None, bytes([number]) * 5000), value\n"
        "    store.put(f'key {number}', bytes([number]) * 5000)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 60


def test_a_disk_that_takes_nothing_is_no_error(tmp_path):
    (tmp_path / "file").write_text("no folder")
    record = RunRecord(tmp_path / "file")
    assert record.ask("start", {}, find(CHECK), 0) == record.ask("start", {}, find(CHECK), 0)
