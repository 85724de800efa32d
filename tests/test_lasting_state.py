"""A lost question is asked again behind the lesson's own cells where they may have changed the answer."""

import ast

import pytest
from submissions import ORDER, answers, solved

from autograder.lasting_state import may_keep_state
from autograder.lessons import hidden_checks
from autograder.lessons.assembly import answer_cells
from autograder.lessons.exhibits import bugs_of

LESSON = ["import torch\nfrom functools import wraps", "model = make(3)", "SIZE = 3"]
KEEPS = {
    "a global name": "def f():\n    global n\n    n = 1",
    "a variable of the module": "seen = []\ndef f(x):\n    seen.append(x)",
    "a variable bound in a loop": "for n in range(3): pass\ndef f():\n    return n",
    "an object of the lesson's": "def f(x):\n    return model(x)",
    "a part of it": "def f(x):\n    model.cache = x",
    "an attribute of the function": "def f(x):\n    f.calls = 1",
    "an entry of a module's dict": "table = {}\ndef f(x):\n    table[x] = 1",
    "a list as a default": "def f(x, seen=[]):\n    return seen",
    "a call as a default": "def f(x, seen=dict()):\n    return seen",
    "a list of the class": "class A:\n    seen = []",
    "an attribute of the class": "class A:\n    def f(self):\n        A.n = 1",
    "the same by its instance": "class A:\n    def f(self):\n        self.__class__.n = 1",
    "the same by type": "class A:\n    def f(self):\n        type(self).n = 1",
    "a variable around it": (
        "def g():\n    n = 0\n    def f():\n        nonlocal n\n        n += 1\n    return f"
    ),
    "a decorator with a memory": "from functools import lru_cache\n@lru_cache\ndef f(x):\n    return x",
    "the same by another name": "from functools import cache as wraps\n@wraps\ndef f(x):\n    return x",
    "a decorator of one's own": "def d(f):\n    return f\n@d\ndef f(x):\n    return x",
    "a setting of the library": "def f(x):\n    torch.set_default_dtype(torch.float64)",
    "its random numbers": "def f(x):\n    torch.manual_seed(0)",
    "a file": "def f(x):\n    open('x', 'w').write('1')",
    "another module": "import helpers\ndef f(x):\n    return helpers.g(x)",
    "what was made by a call": "from functools import partial\nf = partial(print)",
    "a method of what was made": "f = make(3).forward",
    "what cannot be read": "%time f = 3",
}
KEEPS_NOTHING = {
    "a function": "def f(x, n=1, *, big=False):\n    y = x + n\n    y[0] = 3\n    return y.sum()",
    "a class whose objects keep": (
        "class A:\n    '''A.'''\n    size = 3\n    def __init__(self, n):\n        self.n = [n]\n"
        "    def add(self, x):\n        self.n.append(x)\n        self.last = x"
    ),
    "a constant": "BIG = -1e9\ndef f(x):\n    return x + BIG + SIZE",
    "what it is given": "def f(cache, model):\n    cache.length += 1\n    model.x[0] = 2",
    "a name that is another's elsewhere": "cache = make(1)\ndef f(cache):\n    return cache.read()",
    "a helper": "def g(x):\n    return x\ndef f(x):\n    return [g(y) for y in x]",
    "no gradients": "@torch.no_grad()\ndef f(x):\n    return torch.zeros(3)",
    "an inner function": (
        "def f(x):\n    rows = []\n    def g(y):\n        rows.append(y)\n    g(x)\n    return rows"
    ),
    "a result beside it": "def f(x):\n    return x\nresult = f(3)\nprint(result)",
    "imports of the course": "from course.model.cache import CacheFull\ndef f():\n    raise CacheFull",
}


@pytest.mark.parametrize("own", KEEPS.values(), ids=KEEPS)
def test_code_that_may_keep_something_is_found(own):
    assert may_keep_state([own], LESSON, ["f"])


@pytest.mark.parametrize("own", KEEPS_NOTHING.values(), ids=KEEPS_NOTHING)
def test_code_that_keeps_nothing_is_not(own):
    ast.parse(own)
    assert not may_keep_state([own], LESSON, ["f"])


def test_cells_of_the_lesson_with_magics_say_nothing_about_a_student():
    assert not may_keep_state(["def f(x): return x"], ["%matplotlib inline"], ["f"])


def asked_in(module: str) -> set[str]:
    return {name for check in hidden_checks(module).values() for name in check.needs}


@pytest.mark.parametrize("module", ORDER)
def test_the_reference_answers_keep_nothing(module):
    assert not may_keep_state(answer_cells(module, {}), [], asked_in(module))


@pytest.mark.parametrize(
    "name", ["one_length_for_all", "shared_storage", "generate_with_one_cache_for_all"]
)
def test_known_mistakes_that_keep_something_are_found(name):
    (bug,) = [bug for bug in bugs_of("kv_cache") if bug.name == name]
    assert may_keep_state(answer_cells("kv_cache", bug.answer), [], asked_in("kv_cache"))


# --- through the judge ---------------------------------------------------------------------------


@pytest.fixture
def desk(desks):
    return desks("03-kv-cache")


AGAIN = "again, with all cells"


@pytest.mark.slow
def test_a_mistake_that_keeps_nothing_costs_no_run_of_the_lesson(desk):
    right = answers(desk.lesson)["causal_mask"]
    result = desk.judge(solved(desk.lesson, causal_mask=right.replace("<=", "<")))
    assert result.points < 10
    assert AGAIN not in result.seconds
    assert result.skipped > 0


@pytest.mark.slow
def test_one_that_finds_a_name_missing_does(desk):
    wrong = "def causal_mask(n_new, n_visible, device='cpu'):\n    return mask_of_the_lesson(n_new)"
    result = desk.judge(solved(desk.lesson, causal_mask=wrong))
    assert AGAIN in result.seconds
    assert result.skipped == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line", "kept"),
    [
        ("causal_mask", '    check_between("n_visible"', 9),
        ("attention_layer_cached", "    q = split_heads(", 9),
        ("KVCache", "        end = self.length + k.shape[2]", 7.5),
    ],
)
def test_a_loop_costs_the_points_of_its_function(desk, name, line, kept):
    """Each question was waited for at its cell, at the end and behind all cells; then no time was left
    to ask what stands on it with the loop put right: 5, 6 and 2.5 points."""
    right = answers(desk.lesson)[name]
    assert right.count(line) == 1
    indent = " " * (len(line) - len(line.lstrip()))
    wrong = right.replace(line, f"{indent}while True:\n{indent}    pass\n{line}")
    notebook = solved(desk.lesson, **{name: wrong})
    assert desk.judge(notebook, cell=3, question=4, submission=90).points == kept
