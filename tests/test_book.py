"""The book: complete links, no answer, and readable by everybody, in a real browser."""

import functools
import http.server
import re
import threading
from urllib.parse import unquote, urlsplit

import pytest
from browsing import IN_BROWSER, chromium, serious
from bs4 import BeautifulSoup

from autograder.authoring.book import BookError, build_book, site_leaks
from autograder.authoring.book_pages import link_first_uses, museum_pages, read_entries
from autograder.authoring.leaks import secrets_of
from lessons import COURSE, FOLDERS

LESSON = "lessons/03-kv-cache/kv_cache.html"
TERMS = read_entries(
    "### KV cache\n*Also: KV caches*\nKept.\n\n### Token\n*Also: token*\nA word.\n\n"
    "### Kwon et al. 2023\nPages.\n",
    "docs/words.md",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("book") / "site"
    build_book(COURSE, place)
    return place


@pytest.fixture(scope="module")
def pages(site):
    """Each page's path in the site, and what stands there."""
    return {
        path.relative_to(site).as_posix(): BeautifulSoup(
            path.read_text(encoding="utf-8"), "html.parser"
        )
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.parts
    }


def test_the_first_mention_of_a_term_is_linked_and_no_other():
    first, second = link_first_uses(
        ["# Token\n\nA `token`, two tokens.", "A token in KV caches; Kwon et al.\n(2023)."],
        TERMS,
        "../",
    )
    assert first == "# Token\n\nA `token`, two [tokens](../docs/words.md#token)."
    assert second == (
        "A token in [KV caches](../docs/words.md#kv-cache); "
        "[Kwon et al.\n(2023)](../docs/words.md#kwon-et-al-2023)."
    )


def test_no_link_stands_in_a_folded_part_a_link_or_code():
    text = "<details><summary>token</summary>\ntoken\n</details>\n[token](x.md)\n```\ntoken\n```\n"
    assert link_first_uses([text], TERMS, "") == [text]


def test_the_museum_has_a_page_for_each_lesson_of_the_book():
    text = "# The museum\n\nWords.\n\n## Families\n\nx\n\n## 00-a\n\none\n\n## 01-b\n\ntwo\n"
    made = museum_pages(text, ["00-a"])
    assert set(made) == {"docs/museum.md", "docs/museum/00-a.md"}
    assert "one" in made["docs/museum/00-a.md"]
    assert "two" not in "".join(made.values())


def test_a_folder_that_is_no_book_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(BookError, match="holds something that is no book"):
        build_book(COURSE, tmp_path)
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "years of work"


@pytest.mark.slow
def test_every_lesson_has_a_page_with_pictures_that_have_words(pages):
    lessons = {name for name in pages if re.match(r"lessons/\d\d-", name)}
    assert len(lessons) == len(FOLDERS)
    for name in lessons:
        pictures = pages[name].select(".cell_output img")
        assert pictures, name
        assert [image for image in pictures if not image.get("alt", "").strip()] == [], name
        assert "NotImplementedError" in pages[name].get_text(), name
        assert pages[name].select("a[href*='glossary.html#']"), name


@pytest.mark.slow
def test_every_link_within_the_book_leads_somewhere_and_nothing_comes_from_elsewhere(site, pages):
    broken = []
    for name, page in pages.items():
        for tag in page.select("[href], [src]"):
            to = tag.get("href") or tag.get("src")
            address = urlsplit(to)
            if address.scheme or address.netloc:
                if tag.name != "a":
                    broken.append((name, to))
                continue
            path = ((site / name).parent / unquote(address.path)).resolve()
            target = path.relative_to(site.resolve()).as_posix() if address.path else name
            there = (site / target).exists()
            if there and address.fragment and target in pages:
                there = pages[target].find(id=unquote(address.fragment)) is not None
            if not there:
                broken.append((name, to))
    assert broken == []


@pytest.mark.slow
def test_a_planted_answer_is_found(site, tmp_path):
    secrets = secrets_of([COURSE.read("03-kv-cache")])
    (tmp_path / "lessons").mkdir()
    page = (site / LESSON).read_text(encoding="utf-8")
    (tmp_path / "lessons" / "page.html").write_text(page, encoding="utf-8")
    assert site_leaks(tmp_path, secrets) == []
    line = sorted(secrets.lines)[0]
    planted = page.replace("</article>", f"<pre>{line.replace('<', '&lt;')}</pre></article>")
    (tmp_path / "lessons" / "page.html").write_text(planted, encoding="utf-8")
    assert f"lessons/page.html: line: {line}" in site_leaks(tmp_path, secrets)


@pytest.fixture(scope="module")
def address(site):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.mark.slow
@IN_BROWSER
def test_every_page_is_quiet_and_no_wider_than_a_phone(browser, address, pages):
    page = browser.new_page(viewport={"width": 360, "height": 800})
    troubles = troubles_of(page)
    for name in pages:
        page.goto(f"{address}/{name}")
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            troubles.append((name, "scrolls sideways"))
    page.close()
    assert troubles == []


@pytest.mark.slow
@IN_BROWSER
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, address, pages, colours):
    """In the dark only contrast can differ. The museum's pages are written alike: one stands for
    all."""
    page = browser.new_page(color_scheme=colours, viewport={"width": 1280, "height": 800})
    options = {"runOnly": ["color-contrast"]} if colours == "dark" else {}
    found = []
    for name in pages:
        if name.startswith("docs/museum/") and "00-start" not in name:
            continue
        page.goto(f"{address}/{name}")
        assert page.evaluate("document.documentElement.dataset.theme") == colours
        found += [(name, *finding) for finding in serious(page, **options)]
    page.close()
    assert found == []


def troubles_of(page):
    """A list that grows with each error of the console, and each file that is not there."""
    troubles = []
    page.on("console", lambda m: m.type == "error" and troubles.append((page.url, m.text)))
    page.on("pageerror", lambda error: troubles.append((page.url, str(error))))
    page.on("response", lambda r: r.status >= 400 and troubles.append((page.url, r.url)))
    return troubles


@pytest.mark.slow
@IN_BROWSER
def test_the_keyboard_alone_searches_and_reaches_a_lesson(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/index.html")
    page.keyboard.press("Tab")
    assert "skip" in page.evaluate("document.activeElement.textContent").lower()
    for _ in range(30):
        page.keyboard.press("Tab")
        if "Lessons" in page.evaluate("document.activeElement.textContent"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/lessons/index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("sliding window")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=sliding*")
    page.wait_for_selector("#search-results li a[href*='sliding_window']")
    page.close()


@pytest.mark.slow
@IN_BROWSER
def test_a_lesson_prints(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/{LESSON}")
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    assert len(paper) > 100_000  # its pictures are there
    page.close()


@pytest.mark.slow
def test_for_self_study_a_lesson_ends_with_its_answers_folded(tmp_path):
    build_book(COURSE, tmp_path / "site", self_study=True, folders=["00-start"])
    text = (tmp_path / "site/lessons/00-start/start.html").read_text(encoding="utf-8")
    page = BeautifulSoup(text, "html.parser")
    answers = page.find(id="answers")
    assert len(answers.select("details")) == 3
    assert "2 * m * k * n" in answers.get_text()
    assert not (tmp_path / "site/lessons/01-mini-gpt").exists()
