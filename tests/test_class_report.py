"""The page about a class: nothing that a student wrote is more than text in it."""

import re
import shutil
import unicodedata
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from browsing import IN_BROWSER, chromium, serious
from bs4 import BeautifulSoup
from class_results import ASSIGNMENT, BUG, BUGS, CHECKS, LESSON, graded, lost, made, result
from hostile import html as hostile_html

from autograder.assignment import in_words
from autograder.classroom.reporting import report
from autograder.classroom.reporting.class_figures import by_section
from autograder.classroom.reporting.class_mistakes import Work
from autograder.classroom.reporting.report_page import SCRIPT, page
from autograder.classroom.roster import Student
from autograder.classroom.standing import Standing, State
from lessons import ROOT

HOSTILE = (
    f"\u202eevil\u2066\x1b[31m\0</style></title></pre>{hostile_html('page')}"
    '" onmouseover="gotcha()" {{ 7 * 7 }} \U0001f600'
)


def hostile_class() -> tuple[list[Standing], list[Work]]:
    """A class in which all that can be a student's is hostile."""
    mallory = Student(HOSTILE, "Mal", HOSTILE, HOSTILE, HOSTILE, section=HOSTILE)
    code = f"def matmul_flops(m, k, n):\n    return {hostile_html('code')!r}.split('<br>')"
    stopped = replace(made("x", code).result, reason=HOSTILE)
    one_megabyte = lost(HOSTILE + "<img src=x>" * 100_000)
    when = datetime(2026, 10, 6)
    table = [
        graded(mallory, stopped, handed_in=when, seconds_late=100_000, penalty=2.5),
        graded("\u202eben", one_megabyte, HOSTILE),
        *(graded(f"s{n}", result((1, n % 2, 0, 1)), "Tuesday", handed_in=when) for n in range(12)),
        Standing(Student("<b>bold"), State.UNGRADABLE, HOSTILE, 10),
        Standing(Student("dora"), State.NOT_GRADED, "not judged yet: grade again", 10),
        Standing(Student("emil"), State.UNTOUCHED, "", 10, result=lost(), points=0),
        Standing(Student("fay"), State.MISSING, "nothing was handed in", 10),
    ]
    written = {"matmul_flops": code}
    works = [Work(s.student, written, s.result) for s in table if s.state == State.GRADED]
    works += [Work(Student("zed"), {"matmul_flops": "\u202e<script>"})]
    return table, works


def whole_page(table: list[Standing], works: list[Work] = ()) -> str:
    return page("00-start", ASSIGNMENT, BUGS, table, works)


def soup(text: str) -> BeautifulSoup:
    return BeautifulSoup(text, "html.parser")


def test_what_students_wrote_is_text_and_nothing_else():
    text = whole_page(*hostile_class())
    found = soup(text)
    harmless = soup(whole_page([graded("a", lost(), "b")])).find_all(True)
    tags = {tag.name for tag in harmless} | {"pre", "code", "h3", "strong", "br"}
    assert [script.string for script in found.find_all("script")] == [SCRIPT]
    assert {tag.name for tag in found.find_all(True)} <= tags
    names = {name for tag in found.find_all(True) for name in tag.attrs}
    assert not {name for name in names if name.startswith("on") or name in ("src", "srcdoc")}
    assert {a["href"][0] for a in found.find_all(href=True)} == {"#"}
    invisible = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs")}
    assert invisible <= {"\n"}
    assert "{{ 7 * 7 }} \U0001f600" in found.get_text()
    assert len(text) < 500_000


def test_the_page_says_who_has_no_points_why_and_what_to_do():
    found = soup(whole_page(*hostile_class()))
    lead = found.find(class_="lead").get_text()
    assert lead == "18 students: 14 graded, 1 untouched, 1 ungradable, 1 not graded, 1 missing."
    rows = found.find(id="attention").find_parent("table").tbody.find_all("tr")
    assert [row.td.get_text() for row in rows] == [
        "not graded",
        "ungradable",
        "untouched",
        "missing",
    ]
    assert [row.th.get_text() for row in rows] == ["dora", "<b>bold", "emil", "fay"]
    assert rows[0].get_text().endswith("not judged yet: grade again")


def test_the_page_says_what_everyone_got_and_why():
    wrong = graded("ben", lost(bug=BUG.name, family=BUG.family))
    works = [Work(wrong.student, {}, wrong.result, "file:///nb", "file:///page")]
    found = soup(whole_page([graded("ada", result()), wrong, *hostile_class()[0][-1:]], works))
    ada, ben, fay = found.find(id="everyone-table").find_parent("table").tbody.find_all("tr")
    assert [cell.get_text() for cell in ada.find_all("td")] == ["graded", "10", "", "", ""]
    assert ben.find_all("td")[3].get_text() == f"{in_words(CHECKS[0])}: {BUG.mistake}"
    assert [link["href"] for link in ben.find_all("a")] == ["file:///nb", "file:///page"]
    assert fay.td.get_text() == "missing"
    who = found.find("summary", string=re.compile("Who made it")).find_parent("details")
    assert who.p.get_text() == "ben."


def test_the_page_compares_lessons_and_names_who_falls_behind():
    def table(*points: float | None) -> list[Standing]:
        return [
            replace(graded(name, result()), points=score)
            if score is not None
            else Standing(Student(name), State.MISSING, "", 10)
            for name, score in zip("abcd", points, strict=True)
        ]

    lessons = {"00-start": table(9, 8, 1, 9), "01-next": table(10, None, 4, 9.5)}
    lessons["02-last"] = table(7, None, 3, 10)
    text = page("02-last", ASSIGNMENT, BUGS, lessons["02-last"], (), lessons)
    term = soup(text).find(id="term").parent
    rows = term.find(id="term-table").find_parent("table").tbody.find_all("tr")
    assert [[cell.get_text() for cell in row.find_all("td")] for row in rows] == [
        ["4", "8.5", "0"],
        ["3", "9.5", "1"],
        ["3", "7", "1"],
    ]
    assert "below the median: b, c." in term.get_text()
    scores = term.find(id="scores-table").find_parent("table").tbody.find_all("tr")
    assert [cell.get_text() for cell in scores[1].find_all("td")] == ["8", "", ""]
    assert not soup(whole_page(lessons["02-last"])).find(id="term")


def test_a_page_about_nobody_says_so():
    found = soup(whole_page([]))
    assert found.find(class_="lead").get_text().startswith("0 students: 0 graded")
    assert "Nobody is graded yet." in found.get_text()


def test_points_changed_by_hand_are_said_and_count():
    changed = replace(graded("a", lost()), points=9.5)
    text = soup(whole_page([changed])).get_text()
    assert "The median is 9.5 of 10" in text
    assert "The points of 1 student were changed by hand" in text


# In a browser: contrast of every text with what lies behind it, WCAG 2.1 AA


CONTRAST = """() => {
    const numbers = c => c.match(/[\\d.]+/g).map(Number);
    const light = c => numbers(c).slice(0, 3).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = e => { const c = getComputedStyle(e).backgroundColor;
        return numbers(c)[3] === 0 ? behind(e.parentElement) : c; };
    let least = 21;
    for (const e of document.querySelectorAll('main *, header *, nav *, footer *')) {
        const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
        if (!text || e.matches('svg title, svg desc')) continue;
        const style = getComputedStyle(e);
        const [a, b] = [light(e.closest('svg') ? style.fill : style.color), light(behind(e))];
        least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
    }
    return least; }"""
BARE = """() => [...document.querySelectorAll('table')].filter(table => !table.caption
    || [...table.rows].some(row => !row.querySelector('th[scope]'))).length"""


@IN_BROWSER
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_the_page_is_quiet_readable_and_narrow(tmp_path, scheme):
    file = tmp_path / "page.html"
    file.write_text(whole_page(*hostile_class()), encoding="utf-8")
    said, asked = [], []
    with chromium() as browser:
        shown = browser.new_page(viewport={"width": 360, "height": 700}, color_scheme=scheme)
        shown.expose_function("gotcha", lambda *words: said.append(words))
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(file.as_uri())
        assert shown.evaluate("document.documentElement.scrollWidth") == 360
        assert shown.locator("h1").count() == 1
        assert shown.locator("header, nav, main, footer").count() == 4
        assert shown.locator("svg[role=img] title").count() == 1
        assert (shown.locator("table").count() > 8, shown.evaluate(BARE)) == (True, 0)
        ids = shown.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        shown.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert shown.evaluate("document.documentElement.scrollWidth") == 360
        assert shown.evaluate(CONTRAST) >= 4.5
        points = "[...document.querySelectorAll('#everyone-table ~ tbody td:nth-child(4)')]"
        cells = f"() => {points}.map(e => Number(e.textContent))"
        for way in ("ascending", "descending"):
            shown.get_by_role("button", name="Points").click()
            assert shown.locator(f"[aria-sort={way}]").inner_text().startswith("Points")
            sorted_by = sorted(shown.evaluate(cells), reverse=way == "descending")
            assert shown.evaluate(cells) == sorted_by
            assert len(sorted_by) == 18
        assert serious(shown) == []
    assert (said, asked) == ([], [file.as_uri()])


# The command


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    """A course's folder with lesson 00 released and two folders of submissions, not graded."""
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    shutil.copytree(LESSON.student.parent, tmp_path / "lessons" / LESSON.folder)
    for student in ("ada", "ben"):
        (tmp_path / "grading" / "submitted" / student / LESSON.folder).mkdir(parents=True)
    handed_in = tmp_path / "grading" / "submitted" / "ada" / LESSON.folder
    shutil.copy(LESSON.student, handed_in)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_writes_the_page_and_says_who_needs_somebody(course, capsys):
    assert report.main(["00"]) == 1
    file = course / "grading" / "report" / "00-start.html"
    assert soup(file.read_text()).find(class_="lead").get_text().startswith("2 students: 0 graded")
    said = capsys.readouterr().out
    assert said == f"2 students: 1 ungradable, 1 not graded. {file}\n"
    shutil.rmtree(course / "grading" / "submitted")
    (course / "grading" / "roster.csv").write_text("id\nada\n")
    other = course / "elsewhere" / "page.html"
    assert report.main(["00-start", "--output", str(other)]) == 0
    assert "1 missing" in other.read_text()


def test_a_page_that_cannot_be_written_leaves_nothing_behind(course, capsys):
    place = course / "there"
    place.mkdir()
    assert report.main(["00-start", "--output", str(place)]) == 2
    assert "No page was written: " in capsys.readouterr().err
    assert sorted(path.name for path in course.glob(".*")) == []
    assert report.main(["no-lesson"]) == 2
    assert "no lesson 'no-lesson'" in capsys.readouterr().err


def test_sections_are_told_where_the_roster_has_some():
    table = [graded("a", result(), "Tuesday"), graded("b", result()), graded("c", lost(), "Monday")]
    assert list(by_section(table)) == ["Monday", "Tuesday", ""]
    assert by_section([graded("a", result())]) == {}
    with_sections, without = (soup(whole_page(t)) for t in (table, table[1:2]))
    assert with_sections.find(id="sections-states").parent.find(string="(no section)")
    assert not without.find(id="sections")
