"""Syntax trees are built right where several threads ask for them."""

import ast
import gc
import threading

import pytest

from autograder.syntax import parse

LONG = f"x = [{'a.b(c),' * 5000}]"
"""Takes so many objects that the collector of garbage runs while its tree is built."""


@pytest.fixture
def other_at_work():
    """A thread that stands still in the middle of its first tree until the fixture is called."""
    stands, goes_on, failures = threading.Event(), threading.Event(), []

    def read_trees():
        try:
            parse(LONG)
        except SystemError as error:
            failures.append(error)

    def stop_once(phase: str, info: dict) -> None:
        if threading.current_thread() is other and not stands.is_set():
            stands.set()
            goes_on.wait(1)

    def finish() -> list[SystemError]:
        goes_on.set()
        other.join()
        return failures

    other = threading.Thread(target=read_trees)
    gc.callbacks.append(stop_once)
    other.start()
    assert stands.wait(10)
    yield finish
    gc.callbacks.remove(stop_once)
    finish()


def test_a_tree_that_another_thread_has_begun_is_not_disturbed(other_at_work):
    deep = lambda depth: deep(depth - 1) if depth else parse("y = 1")  # noqa: E731
    assert ast.unparse(deep(50)) == "y = 1"
    assert other_at_work() == []


def test_a_tree_that_a_library_disturbs_is_built_again():
    disturbed, main = [], threading.current_thread()

    def disturb(phase: str, info: dict) -> None:
        if threading.current_thread() is main and len(disturbed) < 3:
            disturbed.append(phase)
            library = threading.Thread(target=ast.parse, args=("y = 1",))
            library.start()
            library.join()

    gc.callbacks.append(disturb)
    try:
        tree = parse(LONG)
    finally:
        gc.callbacks.remove(disturb)
    assert len(disturbed) == 3
    assert len(tree.body[0].value.elts) == 5000


@pytest.mark.parametrize("source", ["x = = 1", "x = '\0'"])
def test_what_is_no_python_is_said_as_ever(source):
    with pytest.raises((SyntaxError, ValueError)):
        parse(source)
