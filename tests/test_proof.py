"""The barriers are proven once, as long as nothing changes that they depend on."""

import pytest
from confined import needs_bubblewrap

from autograder.sandbox import command, doctor, proof

pytestmark = needs_bubblewrap


@pytest.fixture
def started(tmp_path, monkeypatch):
    """A way to start that notes which barriers were tried; an account that has proven nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "BARRIERS", doctor.BARRIERS[:3])  # enough to tell one from all
    tried = []

    def start(argv, *arguments, **options):
        tried.append(argv[-1])
        return command.popen(argv, *arguments, **options)

    start.tried = tried
    return start


def tried_by_the_next(start) -> int:
    start.tried.clear()
    assert proof.require(start) == 3
    return len(start.tried)


def test_a_second_run_tries_only_that_something_starts(started):
    assert tried_by_the_next(started) == 3
    assert tried_by_the_next(started) == 1
    assert started.tried == ["start"]


def test_after_the_next_boot_all_are_tried(started, tmp_path, monkeypatch):
    tried_by_the_next(started)
    boot = tmp_path / "boot_id"
    boot.write_text("another")
    monkeypatch.setattr(proof, "BOOT", boot)
    assert tried_by_the_next(started) == 3


def test_another_setting_of_the_kernel_counts(started, tmp_path, monkeypatch):
    tried_by_the_next(started)
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "max_user_namespaces").write_text("7")
    monkeypatch.setattr(doctor, "SETTINGS", tmp_path)
    assert tried_by_the_next(started) == 3


def test_a_record_that_others_could_have_written_does_not_count(started, tmp_path):
    tried_by_the_next(started)
    (record,) = (tmp_path / "second-token").iterdir()
    record.chmod(0o666)
    assert tried_by_the_next(started) == 3


def test_without_a_boot_number_all_are_tried_each_time(started, tmp_path, monkeypatch):
    monkeypatch.setattr(proof, "BOOT", tmp_path / "nowhere")
    assert tried_by_the_next(started) == 3
    assert tried_by_the_next(started) == 3


def test_a_home_that_cannot_be_written_only_takes_longer(started, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert tried_by_the_next(started) == 3
    assert tried_by_the_next(started) == 3


def test_what_was_proven_is_refused_when_nothing_starts_any_more(started):
    tried_by_the_next(started)

    def broken(*_, **__):
        raise OSError("no sandbox was made")

    with pytest.raises(command.SandboxMissing, match="no sandbox was made"):
        proof.require(broken)
