"""What students write is cleaned, and what they may write stays."""

import base64
import time

import pytest
from hostile import html as hostile_html
from hostile import markdown as hostile_markdown
from hostile import outputs as hostile_outputs
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder.report import sanitize

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
# Pieces from which markdown is made, the dangerous ones among them.
PIECES = st.sampled_from(
    [
        *(
            "\n",
            "\n\n",
            " ",
            "    ",
            "a",
            "&lt;script&gt;",
            "<script>",
            "</script>",
            "<div>",
            "</div>",
        ),
        *(
            "<!--",
            "-->",
            "`",
            "```\n",
            "[x](javascript:1)",
            "\\[",
            "](",
            "[",
            "]",
            "<a href='",
            "'>",
        ),
        *(
            "*",
            "_",
            "# ",
            "> ",
            "- ",
            "1. ",
            "|",
            "$",
            "$$",
            "\\(",
            "\\begin{a}",
            "\r",
            "\r\n",
            "&#10;",
        ),
        *(
            "<pre>",
            "</pre>",
            "<details>",
            "<![CDATA[",
            "<?x",
            "<!X",
            "&amp;",
            "\\",
            "<svg>",
            "<style>",
        ),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
@example(hostile_markdown("x"))
def test_a_later_renderer_of_markdown_changes_nothing(source):
    cleaned = sanitize.markdown(source)
    assert "\n" not in cleaned
    assert markdown2html_mistune(cleaned).strip() == cleaned


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
@example(hostile_html("x"))
def test_what_is_clean_stays_as_it_is(source):
    cleaned = sanitize.html(source)
    # HTML drops a newline right after <pre>.
    assert sanitize.html(cleaned).replace("\n", "") == cleaned.replace("\n", "")


@pytest.mark.parametrize("clean", [sanitize.html, sanitize.markdown])
def test_no_tag_and_no_attribute_that_acts_is_left(clean):
    from bs4 import BeautifulSoup

    for source in (hostile_html("x"), hostile_markdown("x")):
        page = BeautifulSoup(clean(source), "html.parser")
        assert {tag.name for tag in page.find_all(True)} <= sanitize.TAGS
        names = {name for tag in page.find_all(True) for name in tag.attrs}
        assert names <= {"href", "rel", "src", "alt", "title", "open"}
        assert not [a["href"] for a in page.find_all(href=True)]
        assert not [img["src"] for img in page.find_all(src=True)]


def test_what_students_write_is_shown():
    source = (
        "## A title\n\n*soft* **hard** `code <b>`\n\n- one\n- two\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n"
        "[a link](https://docs.pytest.org) $x_i < 3$\n\n```python\nif a < b:\n\n    pass\n```\n\n"
        "<details><summary>more</summary>\n\ninside\n\n</details>\n\n![me](attachment:me.png)\n"
    )
    shown = sanitize.markdown(source, {"me.png": {"image/png": PNG}})
    for part in (
        *(
            "<h2>A title</h2>",
            "<em>soft</em>",
            "<strong>hard</strong>",
            "<code>code &lt;b&gt;</code>",
        ),
        *("<li>one</li>", "<td>1</td>", 'href="https://docs.pytest.org"', "$x_i &lt; 3$"),
        *("<details><summary>more</summary>", f'src="data:image/png;base64,{PNG}"', 'alt="me"'),
    ):
        assert part in shown
    assert shown.count("&#10;") > 10  # the lines of the code among them


def test_outputs_are_shown():
    table = '<table border="1" class="dataframe"><tr><th>a</th></tr><tr><td>1</td></tr></table>'
    picture = {"image/png": PNG, "text/plain": "<Figure size 640x480>"}
    kept = sanitize.outputs(
        [
            {"output_type": "stream", "name": "stderr", "text": ["a\n", "b"]},
            {"output_type": "execute_result", "data": {"text/html": [table], "text/plain": "x"}},
            {
                "output_type": "display_data",
                "data": picture,
                "metadata": {"image/png": {"alt": "a cache", "width": 3}},
            },
            {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE", "v"]},
        ]
    )
    stream, rich, drawing, error = kept
    assert (stream.name, stream.text) == ("stderr", "a\nb")
    assert rich.data["text/plain"] == "x"
    assert "<td>1</td>" in rich.data["text/html"]
    assert drawing.data == picture
    assert drawing.metadata == {"image/png": {"alt": "a cache"}}
    assert error.traceback == ["\x1b[31mE", "v"]


def test_an_output_holds_only_what_can_be_shown_safely():
    for output in sanitize.outputs(hostile_outputs()):
        assert set(output.get("data", {})) <= {"text/plain", "text/latex", "text/html"}
        assert "isolated" not in str(output.metadata if "metadata" in output else "")
    (drawing,) = sanitize.outputs(
        [{"output_type": "display_data", "data": {"image/svg+xml": "<svg onload='x'/>"}}]
    )
    code = base64.b64encode(b"<svg onload='x'/>").decode()
    assert drawing.data["text/html"].startswith(f'<img src="data:image/svg+xml;base64,{code}"')


@pytest.mark.parametrize(
    "found", [None, 1, {}, [None, 3, "x"], [{}], [{"output_type": "stream", "text": {"a": 1}}]]
)
def test_outputs_of_no_known_form_are_nobodys_trouble(found):
    assert all(output.text == "" for output in sanitize.outputs(found))


def test_long_things_are_cut_and_deep_ones_survive():
    assert len(sanitize.plain("x" * 10**6)) < sanitize.LONGEST_TEXT + 50
    assert sanitize.markdown("<div>" * 10**5).startswith("<div><pre>&lt;div&gt;")
    too_long = {"text/html": "<b>" * 10**5, "text/plain": "x"}
    (output,) = sanitize.outputs([{"output_type": "display_data", "data": too_long}])
    assert dict(output.data) == {"text/plain": "x"}
    assert sanitize.markdown("> " * 5000 + "x")


def test_half_a_character_becomes_one_that_can_be_written():
    assert sanitize.plain("a\ud83d").encode() == b"a?"


@pytest.mark.parametrize(
    "cell",
    [
        new_markdown_cell(sanitize.markdown("[" * 20_000)),
        new_markdown_cell(sanitize.markdown("![" * 15_000)),
        new_code_cell(sanitize.code("." * 30_000)),
    ],
    ids=["brackets", "pictures", "dots"],
)
def test_a_long_run_is_shown_in_seconds(cell):
    """Without care these take half a minute each, and formgrader serves nobody meanwhile."""
    begun = time.process_time()
    HTMLExporter().from_notebook_node(new_notebook(cells=[cell]))
    assert time.process_time() - begun < 5
