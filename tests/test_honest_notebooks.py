"""What students do in honest notebooks costs no point: all of these pass every test at home."""

import ast
from collections.abc import Callable

import pytest
from nbformat.v4 import new_code_cell
from submissions import Desk, answers, opening, short

from autograder.authoring.source import POINTS
from autograder.lessons import hidden_checks
from autograder.result import Outcome
from autograder.session import PYTHON

CELLS = {
    "a running loop": "import asyncio\nassert asyncio.get_running_loop().is_running()",
    "await": "import asyncio\nx = await asyncio.sleep(0.01, 5)\nassert x == 5",
    "a task that goes on": (
        "import asyncio\nasync def later():\n    await asyncio.sleep(0.05)\n    return 7\n"
        "task = asyncio.create_task(later())"
    ),
    "torch.compile": (
        "import torch\ndouble = torch.compile(lambda x: x + x)\n"
        "assert double(torch.ones(2)).tolist() == [2, 2]"
    ),
    "kernel magics": "%config InlineBackend.figure_format = 'retina'\n%matplotlib inline\n%autosave 60",
    "widget backend": "%matplotlib widget",
    "an unknown magic": "%nobody_knows_this\nx = 1",
    "install": "%pip install tqdm\n!pip --version",
    "captured": "%%capture out\nprint('hidden')",
    "timed": "%%time\nsum(range(10))",
    "shell lines": "files = !ls\nassert 'start.ipynb' in files",
    "a lone surrogate": "print('\\ud83d')",
    "half an emoji": "smile = '\ud83d'\nprint(smile)",
    "default dtype": "import torch\ntorch.set_default_dtype(torch.float64)",
    "no gradients": "import torch\ntorch.set_grad_enabled(False)",
    "strict warnings": "import warnings\nwarnings.simplefilter('error')",
    "strict NumPy": "import numpy as np\nnp.seterr(all='raise')",
    "another folder": "import os, tempfile\nos.chdir(tempfile.mkdtemp())",
    "another stdout": "import io, sys\nsys.stdout = io.StringIO()",
    "closed stdout": "import sys\nsys.stdout.close()",
    "a small stack": "import sys\nsys.setrecursionlimit(400)",
    "exit": "exit()",
    "quit in a branch": "if False:\n    quit()",
    "reset": "x = 1\n%reset -f",
    "a picture": "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('mine.png')\nplt.show()",
    "a widget": "from ipywidgets import interact\ninteract(lambda x: x, x=(0, 3));",
    "a progress bar": "from tqdm.notebook import tqdm\nfor _ in tqdm(range(3)): pass",
    "a file of results": "open('log.txt', 'w').write('loss 3.2')\nassert open('log.txt').read()",
    "threads": "import threading\nthreading.Thread(target=print, args=('hi',), daemon=True).start()",
    "display": "from IPython.display import HTML, clear_output\nclear_output()\nHTML('<b>x</b>')",
    "the last result": "1 + 1\n",
    "history": "_, In, Out",
    "names of ours": "json = os = wire = shell = names = serve = probes = observe = 3",
    "names of Python's": "list = [1]\nlen = 3\nstr = 'x'\nprint = None",
    "a seed": "import random, torch\nrandom.seed(1)\ntorch.manual_seed(1)",
    "one thread": "import torch\ntorch.set_num_threads(1)",
    "threads of a server": "import torch\ntorch.set_num_threads(64)\ntorch.set_num_interop_threads(16)",
    "as many threads as cores": "import os, torch\ntorch.set_num_threads(os.cpu_count())",
    "a class of the same name": "class Recorder: ...",
    "logging": "import logging\nlogging.basicConfig(level=logging.DEBUG)",
}


def bare(source: str) -> str:
    """Without docstrings, comments and annotations."""
    tree = ast.parse(source)
    for function in filter(lambda node: isinstance(node, ast.FunctionDef), ast.walk(tree)):
        function.returns = None
        if ast.get_docstring(function):
            del function.body[0]
        for argument in function.args.args:
            argument.annotation = None
    return ast.unparse(tree)


def decorated(decorator: str, imports: str) -> Callable[[str], str]:
    return lambda source: f"{imports}\n\n{decorator}\n{source.strip()}"


STYLES: dict[str, Callable[[str], str]] = {
    "no docstrings and no annotations": bare,
    "tabs": lambda source: bare(source).replace("    ", "\t"),
    "lines of Windows": lambda source: source.replace("\n", "\r\n"),
    "another alphabet": lambda source: f"# 注释 ä\n变量 = 1\n{source}\n结果 = 变量",
    "a cache": decorated("@functools.cache", "import functools"),
    "no gradients": decorated("@torch.inference_mode()", "import torch"),
    "timed": lambda source: f"%%time\n{source}",
    "run again and again": lambda source: f"{source}\n\n{source}\n\n{source}",
    "with tests of one's own": lambda source: (
        f"{source}\n\nimport unittest, doctest\ntry:\n    import pytest\n"
        "except ImportError:\n    pytest = None\nassert doctest.testmod().failed == 0"
    ),
    "that ends when it is wrong": lambda source: f"{source}\nimport sys\nif 1 + 1 != 2: sys.exit()",
    "that another library would help": lambda source: (
        f"!pip install --quiet einops\ntry:\n    from einops import rearrange\n"
        f"except ImportError:\n    print('no einops')\n{source}"
    ),
}


@pytest.fixture
def desk(desks) -> Desk:
    return desks("00-start")


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_what_a_student_does_first_costs_no_point(desk, name):
    result = desk.judge(opening(desk.lesson, CELLS[name]))
    assert (result.outcome, result.points, result.cells) == (Outcome.SCORE, POINTS, ())


@pytest.mark.slow
def test_everything_at_once_costs_no_point(desk):
    """Cell after cell in one notebook, as a curious student leaves it."""
    harmless = [source for name, source in CELLS.items() if "Python's" not in name]
    assert desk.judge(opening(desk.lesson, *harmless)).points == POINTS


@pytest.mark.slow
def test_everything_behind_the_last_test_costs_no_point(desk):
    assert desk.judge(short(desk.lesson, *CELLS.values())).points == POINTS


def test_files_beside_the_notebook_are_found_as_at_home(desk):
    body = answers(desk.lesson)["matmul_flops"].replace("return 2", "return int(SETTINGS['two'])")
    notebook = opening(
        desk.lesson,
        "%run helper.py",
        "import json\nSETTINGS = json.load(open('settings.json'))",
        "from more.tools import three\nassert three == 3 and loaded",
        "open('settings.json', 'w').write('{}')",
        matmul_flops=body.replace("2 *", "SETTINGS['two'] *"),
    )
    file = desk.write(notebook)
    (file.parent / "helper.py").write_text("loaded = True")
    (file.parent / "settings.json").write_text('{"two": 2}')
    (file.parent / "more").mkdir()
    (file.parent / "more" / "tools.py").write_text("three = 3")
    result = desk.judge(file)
    assert (result.points, result.cells) == (POINTS, ())
    assert (file.parent / "settings.json").read_text() == '{"two": 2}'


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_how_an_answer_is_written_costs_no_point(desk, style):
    written = {name: STYLES[style](source) for name, source in answers(desk.lesson).items()}
    result = desk.judge(short(desk.lesson, **written))
    assert (result.outcome, result.points, result.cells) == (Outcome.SCORE, POINTS, ())


@pytest.mark.slow
def test_two_first_tries_one_of_which_is_no_python_cost_no_point(desk):
    first = ("def matmul_flops(m, k, n)\n    return m * k * n", "def matmul_flops(m, k, n): pass")
    result = desk.judge(opening(desk.lesson, *first))
    assert result.points == POINTS
    assert "SyntaxError" in result.cells[0]
    assert f"Python {PYTHON} reads it here" in result.cells[0]


@pytest.mark.slow
def test_everything_in_one_cell_costs_no_point(desk):
    whole = "\n\n".join(answers(desk.lesson).values())
    notebook = short(desk.lesson)
    names = set(answers(desk.lesson))
    notebook.cells = [cell for cell in notebook.cells if cell.id not in names]
    notebook.cells.insert(1, new_code_cell(whole))
    assert desk.judge(notebook).points == POINTS


@pytest.mark.slow
def test_a_slow_answer_has_its_time_for_each_challenge(desk):
    """Here one challenge takes a second, a question has three, and a challenge may take two."""
    check = hidden_checks(desk.lesson.module)["flops_of_any_product"]
    pause = f"import time; time.sleep({1 / len(check.challenge(0)['cases'])})"
    slow = answers(desk.lesson)["matmul_flops"].replace("return", f"{pause}\n    return")
    result = desk.judge(short(desk.lesson, matmul_flops=slow), question=2)
    assert result.points == POINTS
    assert result.seconds["cells and questions"] > 3
