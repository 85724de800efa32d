"""A notebook that tries to run a script in the browser of whoever looks at it.

Every attempt calls `gotcha` with a name of its own, or asks a server for something.
"""

from __future__ import annotations

import base64
import json

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output, new_raw_cell

ELSEWHERE = "http://elsewhere.example"
WIDGETS = "application/vnd.jupyter.widget-state+json"


def call(name: str) -> str:
    return f"(window.gotcha||top.gotcha)('{name}')"


def html(name: str) -> str:
    """HTML with a script in each of the ways in which HTML can have one."""
    encoded = base64.b64encode(f"<script>top.gotcha('{name} data')</script>".encode()).decode()
    return f"""<script>{call(name + " script")}</script>
<img src=x onerror="{call(name + " onerror")}">
<svg onload="{call(name + " svg")}"><script>{call(name + " svg script")}</script></svg>
<math><mtext><table><mglyph><style><!--</style><img src=x onerror="{call(name + " mutation")}">
</math>
<iframe srcdoc="<script>parent.gotcha('{name} srcdoc')</script>"></iframe>
<iframe src="javascript:parent.{call(name + " frame")}"></iframe>
<object data="data:text/html;base64,{encoded}"></object>
<details open ontoggle="{call(name + " toggle")}"><summary>s</summary></details>
<input autofocus onfocus="{call(name + " focus")}">
<a href="javascript:{call(name + " link")}">link</a>
<a href="jav&#x09;ascript:{call(name + " tab in a link")}">link</a>
<a href="data:text/html;base64,{encoded}">link</a>
<form action="{ELSEWHERE}/form"><button formaction="javascript:{call(name + " button")}">b</button>
</form>
<img src="{ELSEWHERE}/{name.replace(" ", "-")}.png"><link rel=stylesheet href="{ELSEWHERE}/l.css">
<style>@import url({ELSEWHERE}/style.css); .panel-heading {{ display: none }}</style>
<p style="background: url({ELSEWHERE}/background.png)" class="score" id="{name}">styled</p>
<base href="{ELSEWHERE}/"><meta http-equiv="refresh" content="5;url={ELSEWHERE}/meta">
"""


def svg(name: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg"><script>{call(name)}</script></svg>'


def markdown(name: str) -> str:
    """Markdown that becomes such HTML, or links of that kind."""
    return f"""# Title *{name}*

[link](javascript:{call(name + " link")}) <javascript:{call(name + " auto")}>
[named][1] ![remote]({ELSEWHERE}/markdown.png) ![" onerror="{call(name + " alt")}](x)

[1]: javascript:{call(name + " named")}

\\[escaped\\](javascript:{call(name + " twice")}) &lt;script&gt;{call(name + " entity")}&lt;/script&gt;

`<script>{call(name + " code")}</script>` $<img src=x onerror={call(name + " math")}>$

{html(name)}
"""


def outputs() -> list[NotebookNode]:
    """One output for each way in which an output is shown."""
    breaking = f'"><script>{call("picture")}</script>'
    bundles = [
        {"text/html": html("output"), "text/plain": "text"},
        {"image/svg+xml": svg("drawing")},
        {"application/javascript": call("javascript"), "text/plain": "text"},
        {"text/markdown": markdown("markdown output")},
        {"text/latex": f"</div><script>{call('latex')}</script>"},
        {"text/plain": f"<script>{call('plain')}</script>"},
        {"image/png": breaking},
        {"image/jpeg": breaking},
        {"application/vnd.jupyter.widget-view+json": {"model_id": f"</script>{html('widget')}"}},
        {"text/vnd.mermaid": f"graph TD; A[<img src=x onerror={call('mermaid')}>]"},
    ]
    shown = [new_output("display_data", bundle) for bundle in bundles]
    shown[0].metadata = {"text/html": {"isolated": True}}
    shown[1].metadata = {"image/png": {"alt": breaking, "width": breaking}}
    words = f"\x1b[31m<script>{call('words')}</script>"
    return [
        *shown,
        new_output("display_data", {"text/html": html("plain output")}),
        new_output("stream", text=words),
        new_output("error", ename=words, evalue=words, traceback=[words]),
    ]


def arm(notebook: NotebookNode) -> bytes:
    """The same notebook with every attempt in it, as a file."""
    attempt = f"<script>{call('metadata')}</script>"
    notebook.cells += [
        new_markdown_cell(markdown("markdown")),
        new_markdown_cell("* list\n\n  " + html("list").replace("\n", "")),
        new_markdown_cell("![x](attachment:x)", attachments={"x": {"image/png": f'"{attempt}'}}),
        new_code_cell(f"# <script>{call('source')}</script>", outputs=outputs()),
        new_code_cell(f"raise ValueError({html('reported')!r})"),
        new_raw_cell(html("raw"), metadata={"raw_mimetype": "text/html"}),
    ]
    plain = json.loads(nbformat.v4.writes(notebook))
    for cell in plain["cells"][-6:]:
        cell["id"] = f'x"{attempt}'
        cell["metadata"] |= {"tags": [f'x"{attempt}'], "name": attempt}
    plain["cells"][-3]["execution_count"] = attempt
    plain["metadata"] |= {
        "title": f"</title>{attempt}",
        "widgets": {WIDGETS: {"state": {"x": f"</script>{attempt}"}}},
    }
    return json.dumps(plain).encode()
