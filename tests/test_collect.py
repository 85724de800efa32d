"""`autograder collect` brings every student's newest notebook to its folder, and guesses nothing."""

import io
import json
import os
import shutil
import stat
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder.classroom.collecting import archives, arranging
from autograder.classroom.collecting.collect import main
from lessons import ROOT

LESSON, NOTEBOOK = "00-start", "start.ipynb"
ROSTER = """\
id,first_name,last_name,email,lms_user_id
ada,Ada,Lovelace,ada@example.edu,1815
ben,Ben,O'Hara,ben@example.edu,1816
wz1,Wei,Zhang,wz1@example.edu,1901
wz2,Wei,Zhang,wz2@example.edu,1902
zoe,Zoë,Müller-Lang,zoe@example.edu,1903
"""
MOODLE = "_assignsubmission_file"


@dataclass
class Class:
    """A course folder with a roster, and what the command said last."""

    place: Path
    capture: pytest.CaptureFixture

    def zip(
        self, name: str, *files: tuple[str | zipfile.ZipInfo, bytes | str], late: int = 0
    ) -> Path:
        """Write an archive; each file a day after the next, as no download writes them."""
        with zipfile.ZipFile(self.place / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for number, (entry, content) in enumerate(files):
                if isinstance(entry, str):
                    day = 20 - number % 10 + late
                    entry = zipfile.ZipInfo(entry, (2026, 11, day, 15, 14, 12))
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        return self.place / name

    def collect(self, *arguments: str | Path, code: int = 0) -> dict:
        """Run the command, which has to end with this code."""
        self.capture.readouterr()
        assert main([LESSON, *map(str, arguments), "--json"]) == code
        return json.loads(self.capture.readouterr().out or "{}")

    def says(self, *arguments: str | Path) -> str:
        self.capture.readouterr()
        main([LESSON, *map(str, arguments)])
        said = self.capture.readouterr()
        return said.out + said.err

    def folder(self, student: str) -> Path:
        return self.place / "grading" / "submitted" / student / LESSON

    def files(self, student: str) -> dict[str, str]:
        folder = self.folder(student)
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}

    def notebook(self, student: str) -> str | None:
        return self.files(student).get(NOTEBOOK)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A course with its gradebook, which takes seconds to make."""
    place = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "nbgrader_config.py", place)
    shutil.copytree(ROOT / "lessons" / LESSON, place / "lessons" / LESSON)
    (place / "grading").mkdir()
    (place / "grading" / "roster.csv").write_text(ROSTER, encoding="utf-8")
    Gradebook(f"sqlite:///{place / 'grading' / 'gradebook.db'}").close()
    return place


@pytest.fixture
def course(template, tmp_path, monkeypatch, capsys) -> Class:
    place = tmp_path / "course"
    shutil.copytree(template, place)
    monkeypatch.chdir(place)
    return Class(place, capsys)


def test_moodles_folders_are_collected(course):
    moodle = course.zip(
        "moodle.zip",
        (f"Ada Lovelace_77{MOODLE}_/{NOTEBOOK}", "of ada"),
        (f"Ada Lovelace_77{MOODLE}_/data/points.csv", "1,2"),
        (f"BenOHara_78{MOODLE}/{NOTEBOOK}", "nobody: Moodle leaves the blank"),
        (f"Ben OHara_79{MOODLE}/{NOTEBOOK}", "of ben"),
        ("Zoe\u0308 Mu\u0308ller-Lang_80_assignsubmission_onlinetext/onlinetext.html", "hello"),
        (f"Zoe\u0308 Mu\u0308ller-Lang_80{MOODLE}/{NOTEBOOK}", "of zoe"),
    )
    said = course.collect(moodle, code=1)
    assert said["collected"] == ["ada", "ben", "zoe"]
    assert list(said["unmatched"]) == ["BenOHara_78"]
    assert said["missing"] == ["wz1", "wz2"]
    assert course.notebook("ada") == "of ada"
    assert course.files("ada")["data/points.csv"] == "1,2"
    assert course.notebook("zoe") == "of zoe"


def test_moodles_files_without_folders_are_collected(course):
    name = f"Ada Lovelace_77{MOODLE}_{NOTEBOOK}"
    course.collect(course.zip("moodle.zip", (name, "of ada")))
    assert course.notebook("ada") == "of ada"


def test_moodles_number_is_no_students_id(course):
    moodle = course.zip("moodle.zip", (f"Grace Hopper_1815{MOODLE}/{NOTEBOOK}", "of grace"))
    assert list(course.collect(moodle, code=1)["unmatched"]) == ["Grace Hopper_1815"]
    assert course.notebook("ada") is None


def test_canvas_files_are_collected_by_the_users_number(course):
    canvas = course.zip(
        "submissions.zip",
        (f"somebodyelse_1815_4242_{NOTEBOOK}", "of ada"),
        (f"oharaben_LATE_1816_4243_{NOTEBOOK}", "of ben"),
    )
    said = course.collect(canvas)
    assert said["collected"] == ["ada", "ben"]
    assert said["late"] == ["ben"]
    assert course.files("ada") == {NOTEBOOK: "of ada"}  # and no time: Canvas's is the download's


def test_of_canvas_uploads_of_one_name_the_last_counts(course):
    canvas = course.zip(
        "submissions.zip",
        ("lovelaceada_1815_4310_start-10.ipynb", "third"),
        ("lovelaceada_1815_4302_start-2.ipynb", "second"),
        (f"lovelaceada_1815_4242_{NOTEBOOK}", "first"),
        ("lovelaceada_1815_4311_scratch.ipynb", "beside"),
    )
    said = course.collect(canvas)
    assert course.files("ada") == {NOTEBOOK: "third", "scratch.ipynb": "beside"}
    assert said["renamed"] == {"ada": "start-10.ipynb"}


def test_canvas_name_counts_where_the_roster_has_no_number(course):
    roster = course.place / "grading" / "roster.csv"
    roster.write_text("id,first_name,last_name,lms_user_id\nada,Ada,Lovelace,\nben,Ben,O'Hara,5\n")
    canvas = course.zip(
        "submissions.zip",
        (f"lovelaceada_1815_1_{NOTEBOOK}", "of ada"),
        (f"oharaben_1816_2_{NOTEBOOK}", "of another Ben: this one's number is 5"),
    )
    said = course.collect(canvas, code=1)
    assert said["collected"] == ["ada"]
    assert list(said["unmatched"]) == ["oharaben_1816"]


METADATA = """\
---
submission_33000:
  :submitters:
  - :name: Ada L.
    :sid: '7'
    :email: Ada@Example.edu
  - :name: Ben
    :sid: '1816'
    :email:
  :created_at: 2026-11-20 15:14:12.345678000 Z
  :score: 0.0
submission_33001:
  :submitters:
  - :name: Grace Hopper
    :sid:
    :email: grace@example.edu
  :created_at: 2026-11-21 08:00:00.000000000 Z
"""


def test_gradescopes_export_is_collected_with_its_times_and_groups(course):
    files = [(f"submission_3300{n}/{NOTEBOOK}", f"of {n}") for n in (0, 1)]
    files.append(("submission_metadata.yml", METADATA))
    export = course.zip("export.zip", *((f"assignment_4711_export/{n}", c) for n, c in files))
    flat = course.zip("flat.zip", *files)
    for archive in (export, flat):
        said = course.collect(archive, code=1)
        assert list(said["unmatched"]) == ["grace@example.edu"]
        assert course.notebook("ada") == course.notebook("ben") == "of 0"
        assert course.files("ada")["timestamp.txt"] == "2026-11-20 15:14:12 UTC"
    said = course.collect(export, "--match", "grace@example.edu=wz1")
    assert said["collected"] == ["wz1"]


@pytest.mark.parametrize("metadata", ["submission_33000: [", "- a", "submission_33000: 5"])
def test_an_export_whose_metadata_cannot_be_read_is_refused(course, metadata):
    files = (f"submission_33000/{NOTEBOOK}", "hers"), ("submission_metadata.yml", metadata)
    said = course.collect(course.zip("export.zip", *files), code=1)
    assert "export.zip: submission_metadata.yml cannot be read" in said["refused"][0]


def test_a_file_named_like_gradescopes_says_nothing_about_who_handed_in(course):
    evil = METADATA.replace("submission_33000", "folder")
    folder = f"Ada Lovelace_77{MOODLE}"
    hers = (f"{folder}/folder/{NOTEBOOK}", "of ada"), (f"{folder}/submission_metadata.yml", evil)
    for others in ((), ((f"Zoë Müller-Lang_80{MOODLE}/{NOTEBOOK}", "of zoe"),)):
        said = course.collect(course.zip("moodle.zip", *hers, *others))
        assert "ben" not in said["collected"]
        assert course.notebook("ada") == "of ada"
    assert course.notebook("zoe") == "of zoe"
    inside = ("assignment_1_export/submission_33000/submission_metadata.yml", evil)
    own = ("assignment_1_export/submission_metadata.yml", METADATA)
    files = (f"assignment_1_export/submission_33000/{NOTEBOOK}", "of both"), inside, own
    assert course.collect(course.zip("export.zip", *files))["collected"] == ["ada", "ben"]


TEAMS = """\
id,first_name,last_name,section,team
ada,Ada,Lovelace,Tuesday,Red
ben,Ben,O'Hara,Tuesday,Red
luc,Luc,Picard,,
zoe,Zoe,Lang,,
"""


@pytest.mark.parametrize(
    "path", [f"Red_12{MOODLE}/{NOTEBOOK}", f"red/{NOTEBOOK}", f"ben/{NOTEBOOK}"]
)
def test_what_a_team_hands_in_counts_for_all_of_it(course, path):
    (course.place / "grading" / "roster.csv").write_text(TEAMS)
    assert course.collect(course.zip("moodle.zip", (path, "theirs")))["collected"] == ["ada", "ben"]
    assert course.notebook("ada") == course.notebook("ben") == "theirs"
    prefixes = json.loads((course.place / "grading" / "collected" / f"{LESSON}.json").read_text())
    assert prefixes == {"ada": "", "ben": ""}


def test_a_page_goes_back_to_whom_the_platform_names_and_to_no_other_of_a_team(course):
    (course.place / "grading" / "roster.csv").write_text(TEAMS)
    course.collect(course.zip("moodle.zip", (f"Ben OHara_79{MOODLE}/{NOTEBOOK}", "theirs")))
    prefixes = json.loads((course.place / "grading" / "collected" / f"{LESSON}.json").read_text())
    assert prefixes == {"ada": "", "ben": f"Ben OHara_79{MOODLE}_"}


def test_a_group_without_a_team_is_matched_by_hand(course):
    moodle = course.zip("moodle.zip", (f"Group A_12{MOODLE}/{NOTEBOOK}", "theirs"))
    assert list(course.collect(moodle, code=1)["unmatched"]) == ["Group A_12"]
    by_hand = ("--match", "Group A_12=ada", "--match", "Group A_12=ben")
    assert course.collect(moodle, *by_hand)["collected"] == ["ada", "ben"]


def test_a_section_before_a_name_is_read_and_no_other_word(course):
    (course.place / "grading" / "roster.csv").write_text(TEAMS)
    names = ("Tuesday-Ada Lovelace_77", "Jean-Luc Picard_78")
    moodle = course.zip("moodle.zip", *((f"{name}{MOODLE}/{NOTEBOOK}", name) for name in names))
    said = course.collect(moodle, code=1)
    assert said["collected"] == ["ada", "ben"]
    assert list(said["unmatched"]) == ["Jean-Luc Picard_78"]


def test_folders_are_matched_by_id_address_number_and_name(course):
    inbox = course.place / "inbox"
    for name in ("ada", "BEN@example.edu", "1901", "müller-lang  zoë"):
        (inbox / name).mkdir(parents=True)
        (inbox / name / NOTEBOOK).write_text(name)
    (inbox / "wz2.ipynb").write_text("of wz2")
    said = course.collect(inbox)
    assert said["collected"] == ["ada", "ben", "wz1", "wz2", "zoe"]
    assert said["renamed"] == {}
    assert course.notebook("wz2") == "of wz2"


def test_the_folder_around_a_zipped_folder_is_nobody(course):
    zipped = course.zip("inbox (1).zip", (f"inbox/ada/{LESSON}/{NOTEBOOK}", "of ada"))
    assert course.collect(zipped)["collected"] == ["ada"]
    assert course.notebook("ada") == "of ada"


def test_two_of_one_name_are_asked_about_and_never_guessed(course):
    moodle = course.zip(
        "moodle.zip",
        (f"Wei Zhang_901{MOODLE}/{NOTEBOOK}", "the first's"),
        (f"Wei Zhang_902{MOODLE}/{NOTEBOOK}", "the second's"),
    )
    said = course.collect(moodle, code=1)
    assert list(said["ambiguous"]) == ["Wei Zhang_901", "Wei Zhang_902"]
    assert "wz1 (wz1@example.edu) or wz2" in said["ambiguous"]["Wei Zhang_901"]
    assert said["missing"] == ["ada", "ben", "zoe"]
    assert not course.folder("wz1").exists()
    assert '--match "Wei Zhang_901=ID"' in course.says(moodle)
    by_hand = ("--match", "Wei Zhang_901=wz2", "--match", "wei zhang_902=wz1")
    assert course.collect(moodle, *by_hand)["collected"] == ["wz1", "wz2"]
    assert course.notebook("wz2") == "the first's"


def test_two_of_a_name_that_the_class_has_once_are_asked_about(course):
    moodle = course.zip(
        "moodle.zip",
        (f"Ada Lovelace_77{MOODLE}/{NOTEBOOK}", "hers"),
        (f"Ada Lovelace_78{MOODLE}/{NOTEBOOK}", "of one who is not in the roster"),
    )
    said = course.collect(moodle, code=1)
    assert list(said["ambiguous"]) == ["Ada Lovelace_77", "Ada Lovelace_78"]
    assert course.notebook("ada") is None


def test_somebody_who_is_not_in_the_class_can_be_left_out(course):
    demo = course.zip("moodle.zip", (f"Demo Student_5{MOODLE}/{NOTEBOOK}", "a demo"))
    assert course.collect(demo, "--match", "Demo Student_5=")["unmatched"] == {}


def test_moodles_worksheet_says_who_is_who_and_when_they_handed_in(course):
    moodle = course.zip(
        "moodle.zip",
        (f"Wei Zhang_901{MOODLE}/{NOTEBOOK}", "the first's"),
        (f"Wei Zhang_902{MOODLE}/{NOTEBOOK}", "the second's"),
        (f"Ada Lovelace_77{MOODLE}/{NOTEBOOK}", "hers"),
        (f"Ben OHara_79{MOODLE}/{NOTEBOOK}", "of another Ben"),
    )
    worksheet = course.place / "Grades.csv"
    worksheet.write_text(
        "\ufeffIdentifier,Full name,Email address,Status,Last modified (submission)\r\n"
        'Participant 901,Wei Zhang,WZ2@example.edu,Submitted,"Friday, 20 November 2026, 3:14 PM"\r\n'
        'Participant 902,Wei Zhang,wz1@example.edu,Submitted,"Saturday, 21 November 2026, 12:05 AM"\r\n'
        "Participant 77,Ada Lovelace,,Submitted,-\r\n"
        "Participant 79,Ben OHara,another.ben@example.edu,Submitted,-\r\n"
    )
    options = ("--worksheet", worksheet, "--zone", "Europe/Berlin", "--times", "downloaded")
    said = course.collect(moodle, *options, code=1)
    assert said["collected"] == ["ada", "wz1", "wz2"]
    assert list(said["unmatched"]) == ["Ben OHara_79"]
    assert course.files("wz2") == {
        NOTEBOOK: "the first's",
        "timestamp.txt": "2026-11-20 14:14:00 UTC",
    }
    assert course.files("wz1")["timestamp.txt"] == "2026-11-20 23:05:00 UTC"
    assert course.files("ada") == {NOTEBOOK: "hers"}
    by_hand = ("--match", "Ben OHara_79=ben")
    assert course.collect(moodle, *options, *by_hand)["collected"] == ["ben"]


@pytest.mark.parametrize(
    ("sheet", "why"),
    [
        ("ID,Vollständiger Name\n1,Ada\n", "no column Identifier"),
        ("Identifier,Last modified (submission)\nParticipant 1,gestern\n", "not a time in English"),
        ('Identifier\n"Participant', "cannot be read"),
    ],
)
def test_a_worksheet_that_cannot_be_read_stops_everything(course, sheet, why):
    (course.place / "Grades.csv").write_text(sheet)
    assert why in course.says(two_in_turn(course), "--worksheet", "Grades.csv")
    assert not course.folder("ada").exists()


@pytest.mark.parametrize("words", ["Nobody_5=ada", "Ada Lovelace_77=adda", "Ada Lovelace_77"])
def test_a_match_that_names_nobody_is_refused(course, words):
    moodle = course.zip("moodle.zip", (f"Ada Lovelace_77{MOODLE}/{NOTEBOOK}", "hers"))
    assert main([LESSON, str(moodle), "--match", words]) == 2
    assert not course.folder("ada").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("start (1).ipynb", "start-1.ipynb", "start_1815.ipynb", "Start.ipynb", "my work.ipynb"),
        *("start.ipynb.txt", "my work.ipynb.json"),
    ],
)
def test_a_students_only_notebook_gets_the_lessons_name(course, name):
    said = course.collect(course.zip("inbox.zip", (f"ada/{name}", "hers"), ("ada/a.py", "a = 1")))
    assert said["renamed"] == {"ada": name}
    assert course.files("ada").keys() - {"timestamp.txt"} == {NOTEBOOK, "a.py"}


def test_of_several_notebooks_the_one_with_the_lessons_name_counts(course):
    files = (
        ("ada/start (1).ipynb", "one"),
        ("ada/start.ipynb", "two"),
        ("ada/old/start.ipynb", "three"),
    )
    course.collect(course.zip("inbox.zip", *files))
    assert course.notebook("ada") == "two"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("a.ipynb", "b.ipynb"), "which of these is start.ipynb? a.ipynb, b.ipynb"),
        (("a/start.ipynb", "b/start.ipynb"), "which of these is start.ipynb?"),
        (("work.pdf",), "no notebook, but work.pdf"),
        (("start.ipynb.txt", "Start.ipynb.json"), "which of these is start.ipynb?"),
    ],
)
def test_what_can_be_several_notebooks_or_none_is_asked_about(course, names, why):
    files = [(f"ada/{name}", "hers") for name in names]
    said = course.collect(course.zip("inbox.zip", *files, (f"ben/{NOTEBOOK}", "his")), code=1)
    assert why in said["unclear"]["ada"]
    assert said["collected"] == ["ben"]
    assert "ada" not in said["missing"]


def test_the_instructor_says_which_file_to_take(course):
    files = [(f"ada/{name}", name) for name in ("a.ipynb", "sub/b.ipynb", "notes")]
    inbox = course.zip("inbox.zip", *files)
    assert '--take "ada=FILE"' in course.says(inbox)
    for take, said in (
        ("b.ipynb", "sub/b.ipynb"),
        ("sub/b.ipynb", "sub/b.ipynb"),
        ("notes", "notes"),
    ):
        course.collect(inbox, "--take", f"ada={take}")
        assert course.notebook("ada") == said
        shutil.rmtree(course.folder("ada"))
    why = course.collect(inbox, "--take", "ada=c.ipynb", code=1)["unclear"]["ada"]
    assert why == "no file c.ipynb to take, but a.ipynb, notes, sub/b.ipynb"


@pytest.mark.parametrize("words", ["nobody=a.ipynb", "ada=", "a.ipynb"])
def test_a_take_that_names_nobody_or_nothing_is_refused(course, words):
    inbox = course.zip("inbox.zip", ("ada/a.ipynb", "hers"))
    assert f"--take {words!r}: say a student's id and a file" in course.says(inbox, "--take", words)
    assert not course.folder("ada").exists()


def zipped(*files: tuple[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()


def test_a_zip_file_that_was_handed_in_is_read(course):
    hers = zipped(("work/start.ipynb", "hers"), ("work/a.py", "a = 1"), ("../evil.py", ""))
    moodle = course.zip(
        "moodle.zip", (f"Ada Lovelace_77{MOODLE}/work.zip", hers), ("ben.zip", b"PK")
    )
    said = course.collect(moodle, code=1)
    assert course.files("ada").keys() - {"timestamp.txt"} == {NOTEBOOK, "a.py"}
    assert course.notebook("ada") == "hers"
    evil, broken = said["refused"]
    assert evil == "work.zip: ../evil.py is left out: its path leads out of the folder"
    assert "moodle.zip: ben is left out: ben.zip is not a ZIP file, or a broken one" in broken


def test_a_zip_file_beside_a_notebook_stays_one(course):
    files = (f"ada/{NOTEBOOK}", "hers"), ("ada/data.zip", "not even one")
    course.collect(course.zip("inbox.zip", *files))
    assert course.notebook("ada") == "hers"
    assert (course.folder("ada") / "data.zip").exists()


def test_the_newest_attempt_of_all_archives_counts(course):
    name = f"Ada Lovelace_77{MOODLE}/{NOTEBOOK}"
    newer = course.zip("first.zip", (name, "newer"), late=3)
    older = course.zip("second.zip", (name, "older"))
    course.collect(newer, older)
    assert course.notebook("ada") == "newer"


def test_what_is_collected_again_is_left_alone_and_older_files_replace_nothing(course):
    name = f"ada/{NOTEBOOK}"
    first = course.zip("first.zip", (name, "first"))
    second = course.zip("second.zip", (name, "second"), late=3)
    assert course.collect(second)["collected"] == ["ada"]
    before = course.folder("ada").stat().st_ino
    assert course.collect(second)["unchanged"] == ["ada"]
    assert course.collect(first)["older"] == ["ada"]
    assert course.folder("ada").stat().st_ino == before
    assert course.notebook("ada") == "second"


def test_what_is_replaced_is_kept_aside(course):
    first = course.zip("first.zip", (f"ada/{NOTEBOOK}", "first"), ("ada/a.py", "a = 1"))
    course.collect(first, "--times", "handed-in", "--zone", "UTC")
    second = course.zip("second.zip", (f"ada/{NOTEBOOK}", "second"), late=3)
    course.collect(second)
    assert course.files("ada") == {NOTEBOOK: "second"}  # the first one's time as well is gone
    aside = course.place / "grading/replaced/ada" / LESSON / "2026-11-20T151412Z"
    assert (aside / NOTEBOOK).read_text() == "first"
    assert (aside / "a.py").exists()
    assert [path.name for path in course.folder("ada").parent.iterdir()] == [LESSON]


def test_a_dry_run_says_the_same_and_writes_nothing(course):
    first = course.zip("first.zip", (f"ada/{NOTEBOOK}", "first"))
    course.collect(first)
    second = course.zip("second.zip", (f"ada/{NOTEBOOK}", "2"), (f"ben/{NOTEBOOK}", "his"), late=3)
    said = course.collect(second, "--dry-run")
    assert said["collected"] == ["ada", "ben"]
    assert course.notebook("ada") == "first"
    assert not course.folder("ben").parent.exists()
    assert said == course.collect(second) | {"dry_run": True}


def two_in_turn(course: Class) -> Path:
    """An archive whose times cannot be those of one download."""
    return course.zip("inbox.zip", (f"ada/{NOTEBOOK}", "hers"), (f"ben/{NOTEBOOK}", "his"))


def test_times_of_the_hand_in_are_written_in_utc(course):
    course.collect(two_in_turn(course), "--zone", "Europe/Berlin")
    assert course.files("ada")["timestamp.txt"] == "2026-11-20 14:14:12 UTC"
    assert course.files("ben")["timestamp.txt"] == "2026-11-19 14:14:12 UTC"


def test_times_of_a_download_are_not_taken_for_those_of_the_hand_in(course):
    moments = [(2026, 11, 20, 15, 14, 12), (2026, 11, 20, 15, 14, 14)]
    names = [f"ada/{NOTEBOOK}", f"ben/{NOTEBOOK}"]
    entries = [zipfile.ZipInfo(*pair) for pair in zip(names, moments, strict=True)]
    inbox = course.zip("inbox.zip", *[(entry, "a notebook") for entry in entries])
    said = course.collect(inbox)
    assert said["handed_in"] == {"ada": None, "ben": None}
    assert course.files("ada") == {NOTEBOOK: "a notebook"}
    course.collect(inbox, "--times", "handed-in", "--zone", "UTC")
    assert course.files("ben")["timestamp.txt"] == "2026-11-20 15:14:14 UTC"


def test_a_time_that_the_archive_tells_in_utc_needs_no_zone(course):
    entry = zipfile.ZipInfo(f"ada/{NOTEBOOK}", (2026, 11, 20, 3, 0, 0))
    moment = int(datetime(2026, 11, 20, 15, 14, 13, tzinfo=UTC).timestamp())
    entry.extra = b"UT\x05\x00\x01" + moment.to_bytes(4, "little")
    course.collect(course.zip("inbox.zip", (entry, "hers")), "--times", "handed-in")
    assert course.files("ada")["timestamp.txt"] == "2026-11-20 15:14:13 UTC"


def test_a_students_own_time_stamp_counts_for_nothing(course):
    stamp = "2020-01-01 00:00:00 UTC"
    files = (f"ada/{NOTEBOOK}", "hers"), ("ada/timestamp.txt", stamp), ("ada/TIMESTAMP.TXT", stamp)
    course.collect(course.zip("inbox.zip", *files), "--times", "downloaded")
    assert course.files("ada") == {NOTEBOOK: "hers"}


def link(name: str, target: str) -> tuple[zipfile.ZipInfo, str]:
    entry = zipfile.ZipInfo(name, (2026, 11, 20, 15, 14, 12))
    entry.create_system = 3
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry, target


@pytest.mark.parametrize(
    "entry",
    [
        ("ada/../../../../evil.txt", "evil"),
        ("/evil.txt", "evil"),
        ("C:\\evil.txt", "evil"),
        ("..\\evil.txt", "evil"),
        ("ada/evil\x1b[2J.txt", "evil"),
        (f"ada/{'evil' * 60}.txt", "evil"),
        link("ada/evil.txt", "/etc/passwd"),
    ],
)
def test_a_hostile_entry_is_left_out_and_named(course, entry):
    files = entry, (f"ada/{NOTEBOOK}", "hers"), (f"ben/{NOTEBOOK}", "his")
    hostile = course.zip("inbox.zip", *files)
    said = course.collect(hostile, code=1)
    assert said["collected"] == ["ada", "ben"]
    (line,) = said["refused"]
    assert "evil" in line
    assert line.isprintable()
    assert not list(course.place.rglob("*evil*"))


def test_a_folder_with_a_link_in_it_is_not_followed(course):
    inbox = course.place / "inbox"
    (inbox / "ada").mkdir(parents=True)
    (inbox / "ada" / NOTEBOOK).write_text("hers")
    (inbox / "ada" / "secret.txt").symlink_to(course.place / "nbgrader_config.py")
    (inbox / "ben").symlink_to(course.place / "grading")
    said = course.collect(inbox, code=1)
    assert len(said["refused"]) == 2
    assert course.files("ada") == {NOTEBOOK: "hers"}


def broken(data: bytes) -> bytes:
    """The archive with another byte in the first file's content."""
    place = data.index(b"ada/") + 4 + len(NOTEBOOK) + 1
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def encrypted(data: bytes) -> bytes:
    """The archive whose first file says that it is encrypted."""
    header = data.index(b"PK\x01\x02")
    return data[: header + 8] + b"\x01" + data[header + 9 :]


@pytest.mark.parametrize("spoil", [broken, encrypted])
def test_a_file_that_cannot_be_read_concerns_its_student_alone(course, spoil):
    inbox = two_in_turn(course)
    inbox.write_bytes(spoil(inbox.read_bytes()))
    said = course.collect(inbox, code=1)
    assert said["collected"] == ["ben"]
    assert "ada" in said["refused"][0]
    assert not course.folder("ada").exists()


def test_a_broken_archive_leaves_what_was_collected_and_the_others(course):
    course.collect(course.zip("first.zip", (f"ada/{NOTEBOOK}", "hers")))
    cut = course.place / "cut.zip"
    cut.write_bytes(two_in_turn(course).read_bytes()[:-30])
    said = course.collect(cut, course.zip("third.zip", (f"ben/{NOTEBOOK}", "his")), code=1)
    assert said["collected"] == ["ben"]
    assert "cut.zip is not a ZIP file, or a broken one" in said["refused"][0]
    assert course.notebook("ada") == "hers"


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_BYTES", 2**20), ("MAX_ENTRIES", 3), ("MAX_DEPTH", 2)]
)
def test_a_submission_beyond_a_limit_is_refused_before_it_is_unpacked(
    course, monkeypatch, limit, value
):
    monkeypatch.setattr(arranging, limit, value)
    more = [("ada/a/b/c.txt", bytes(2**21)), ("ada/d.txt", ""), ("ada/e.txt", "")]
    files = [(f"ada/{NOTEBOOK}", "hers"), *more, (f"ben/{NOTEBOOK}", "his")]
    said = course.collect(course.zip("inbox.zip", *files), code=1)
    assert said["collected"] == ["ben"]
    assert "are taken" in said["refused"][0]


def test_an_archive_with_too_many_files_is_refused(course, monkeypatch):
    monkeypatch.setattr(archives, "MAX_ENTRIES", 1)
    assert "more than 1 files" in course.collect(two_in_turn(course), code=1)["refused"][0]


def test_what_systems_put_beside_files_is_left_out(course):
    junk = ("__MACOSX/ada/._start.ipynb", "ada/.DS_Store", "ada/.ipynb_checkpoints/start.ipynb")
    course.collect(
        course.zip("inbox.zip", *[(name, "") for name in junk], (f"ada/{NOTEBOOK}", "hers"))
    )
    assert course.files("ada").keys() - {"timestamp.txt"} == {NOTEBOOK}


def test_a_name_in_utf8_without_its_mark_is_read(course):
    marked = course.zip("moodle.zip", (f"Zoë Müller-Lang_80{MOODLE}/{NOTEBOOK}", "of zoe"))
    data = marked.read_bytes()
    local, central = data.index(b"PK\x03\x04") + 7, data.index(b"PK\x01\x02") + 9
    for place in (local, central):
        assert data[place] == 0x08
        data = data[:place] + b"\x00" + data[place + 1 :]
    marked.write_bytes(data)
    assert course.collect(marked)["collected"] == ["zoe"]


def test_of_two_names_that_differ_in_case_the_lessons_own_counts(course):
    files = ("ada/START.ipynb", "one"), ("ada/start.ipynb", "two"), ("ada/Start.ipynb", "three")
    course.collect(course.zip("inbox.zip", *files))
    assert course.files("ada").keys() - {"timestamp.txt"} == {NOTEBOOK}
    assert course.notebook("ada") == "two"


def test_a_student_cannot_hand_in_for_another_one(course):
    """Names like those that platforms write, in places that a student fills."""
    inner = f"Wei Zhang_902{MOODLE}/{NOTEBOOK}"
    moodle = course.zip(
        "moodle.zip",
        (f"Ben OHara_79{MOODLE}/{inner}", "of ben"),
        (f"Ada Lovelace_77{MOODLE}_Zoë Müller-Lang_80{MOODLE}_{NOTEBOOK}", "of ada"),
    )
    canvas = course.zip(
        "canvas.zip", (f"zhangwei_1901_7_lovelaceada_1815_4242_{NOTEBOOK}", "of wz1")
    )
    plain = course.zip("plain.zip", (f"mallory/zoe/{NOTEBOOK}", "of mallory"))
    said = course.collect(moodle, canvas, plain, code=1)
    assert said["collected"] == ["ada", "ben", "wz1"]
    assert list(said["unmatched"]) == ["mallory"]


def test_a_file_that_cannot_be_written_leaves_what_lay_there(course):
    course.collect(course.zip("first.zip", (f"ada/{NOTEBOOK}", "first")))
    clash = ("ada/data", "a file"), ("ada/data/points.csv", "a folder of that name")
    second = course.zip("second.zip", (f"ada/{NOTEBOOK}", "second"), *clash, late=3)
    assert "ada" in course.collect(second, code=1)["refused"][0]
    assert course.notebook("ada") == "first"
    assert os.listdir(course.folder("ada").parent) == [LESSON]


def test_nothing_begins_without_archive_class_or_lesson(course):
    assert "there is no absent.zip" in course.says("absent.zip")
    inbox = two_in_turn(course)
    assert "no lesson '99' is released" in run_lesson(course, "99", inbox)
    (course.place / "grading" / "roster.csv").write_text("id\n")
    assert "no student is known" in course.says(inbox)
    with pytest.raises(SystemExit, match="2"):
        main([LESSON, str(inbox), "--zone", "Berlin"])


def run_lesson(course: Class, lesson: str, inbox: Path) -> str:
    assert main([lesson, str(inbox)]) == 2
    return course.capture.readouterr().err


def test_the_words_are_short_and_aligned(course):
    moodle = course.zip(
        "moodle.zip",
        (f"Ada Lovelace_77{MOODLE}/start (1).ipynb", "hers"),
        (f"Wei Zhang_901{MOODLE}/{NOTEBOOK}", "whose?"),
    )
    assert course.says(moodle) == (
        "00-start\n"
        "collected     1  Ada Lovelace (ada)\n"
        "renamed       1  Ada Lovelace (ada): start (1).ipynb\n"
        "ambiguous     1  Wei Zhang_901: can be wz1 (wz1@example.edu) or wz2 (wz2@example.edu)\n"
        "missing       2  Ben O'Hara (ben), Zoë Müller-Lang (zoe)\n"
        'Say who it is with --match "Wei Zhang_901=ID", or --match "Wei Zhang_901=" to leave it out; or '
        "name the folder as the student's id.\n"
    )
