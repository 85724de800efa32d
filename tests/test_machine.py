"""The machine's card, and the stopwatch: what is called, how often, in which order."""

import pytest
import torch

from course.measure import machine


def test_the_card_describes_this_machine():
    card = machine.card()
    assert card.cpu
    assert card.cores >= 1
    assert card.memory > 2**28
    assert (card.gpu is None) == (
        not torch.cuda.is_available() and not torch.backends.mps.is_available()
    )
    assert card.gpu is not None or card.gpu_memory is None
    assert card.versions["torch"] == torch.__version__
    assert set(card.versions) == {"Python", "torch", "numpy", "course"}


def test_one_thread_is_given_back_even_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with machine.one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError), machine.one_thread():
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_seconds_leaves_warm_up_out():
    calls = []
    times = machine.seconds(lambda: calls.append(1), warmup=2, repeats=3)
    assert len(calls) == 5
    assert len(times) == 3
    assert all(time >= 0 for time in times)


def test_interleaved_takes_turns_after_one_warm_up_each():
    calls = []
    times = machine.interleaved(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3
    )
    assert "".join(calls) == "ab" + "ab" * 3
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: machine.seconds(3), "call must be something to call.*got int"),
        (lambda: machine.seconds(print, warmup=-1), "warmup must be.*at least 0, got -1"),
        (lambda: machine.seconds(print, repeats=0), "repeats must be.*at least 1, got 0"),
        (lambda: machine.seconds(print, repeats=2.0), r"got 2\.0"),
        (lambda: machine.interleaved({}), "at least one call"),
        (lambda: machine.interleaved({"a": None}), r"calls\['a'\].*got NoneType"),
        (lambda: machine.interleaved({"a": print}, rounds=0), "rounds must be.*got 0"),
    ],
)
def test_a_bad_value_is_named_and_nothing_is_called(call, message, capsys):
    with pytest.raises(ValueError, match=message):
        call()
    assert capsys.readouterr().out == ""
