"""What a function does beside another device, found out on a machine without a GPU."""

import pytest
import torch
import torch.nn.functional as F

from course.checks.default_device import beside_default
from course.checks.recorder import Recorder
from course.checks.rules import judge_rules, wrong_device

X = torch.rand(3, 4)
ON_THE_OTHER = "its result lies on the other"


@pytest.mark.parametrize(
    "call",
    [
        lambda: X + torch.ones(4, device=X.device),
        lambda: torch.tensor(X.tolist(), device=X.device),
        lambda: torch.cat([X.new_zeros(1, 4), torch.zeros_like(X)]),
        lambda: X / torch.sqrt(torch.tensor(4.0)),
        lambda: torch.where(X > 0.5, X, torch.tensor(0.0)),
        lambda: X[torch.arange(2)],
        lambda: F.embedding(torch.arange(2), X),
    ],
)
def test_what_is_made_where_its_inputs_lie_is_right_and_numbers_and_indices_may_lie_anywhere(call):
    assert beside_default(call) == ""


def on_the_device_of(x, named="cpu"):
    """As `named` says, or as x does."""
    kind = x.device.type
    return torch.ones(1, 4, device=kind if named is None else named)


def test_a_name_that_is_read_off_an_input_tells_and_one_that_is_written_does_not():
    device = torch.device("cpu")
    assert beside_default(lambda: torch.cat([X, on_the_device_of(X, named=None)])) == ""
    assert beside_default(lambda: torch.cat([X, torch.ones(1, 4, device=str(device))])) == ""
    assert "mixed both" in beside_default(lambda: torch.cat([X, on_the_device_of(X)]))
    assert "mixed both" in beside_default(lambda: torch.cat([X, torch.ones(1, 4, device="cpu")]))


@pytest.mark.parametrize("told", [{}, {"device": None}])
def test_a_tensor_that_is_made_without_its_inputs_device_is_noticed(told):
    mixed = beside_default(lambda: torch.cat([X, torch.ones(1, 4, **told)]))
    assert mixed == "it mixed both, and stopped with RuntimeError"
    assert "mixed both" in beside_default(
        lambda: X.masked_fill(torch.ones(3, 4, **told).tril() > 0, 0)
    )
    attend, rows = F.scaled_dot_product_attention, torch.rand(1, 1, 3, 4)
    mask = beside_default(lambda: attend(rows, rows, rows, torch.ones(3, 3, **told)))
    assert "mixed both" in mask
    assert beside_default(lambda: (X, torch.zeros(2, **told))) == ON_THE_OTHER


def test_rows_that_are_copied_to_the_other_device_are_noticed():
    def copied():
        out = torch.empty(3, 4)
        out[:] = X
        return out

    assert beside_default(copied) == ON_THE_OTHER


def test_code_that_looks_at_numbers_or_stops_by_itself_is_not_blamed():
    assert beside_default(lambda: torch.rand(1).item()) == ""
    assert beside_default(lambda: torch.ones(2).numpy()) == ""
    assert beside_default(lambda: bool(torch.ones(2).any())) == ""
    assert beside_default(lambda: 1 / 0) == ""


def test_what_is_not_written_yet_stays_that():
    def stub():
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        beside_default(stub)


def test_what_was_found_is_worded():
    assert wrong_device("f", "") is None
    wrong = wrong_device("f", ON_THE_OTHER)
    assert wrong.startswith("f was given tensors on one device")
    assert wrong.endswith("does not say where?")


def careless(x, n=2):
    return torch.ones(n) * x.sum()


def careful(x, n=2):
    return torch.ones(n, device=x.device) * x.sum()


def test_every_function_of_tensors_is_called_once_more():
    for function in (careless, careful):
        recorder = Recorder()
        recorder.watch("f", function)(X)
        said = judge_rules(recorder.broken())
        assert said == (wrong_device("f", ON_THE_OTHER) if function is careless else None)


@pytest.mark.parametrize(
    "arguments", [(2,), (torch.nn.Linear(4, 4),), (X, torch.Generator()), (X.to("meta"),)]
)
def test_a_function_is_not_called_again_with_what_may_keep_something(arguments):
    calls = []
    recorder = Recorder()
    recorder.watch("f", lambda *given: calls.append(given))(*arguments)
    assert len(calls) == 1


def test_the_other_call_changes_no_argument_draws_no_number_and_prints_nothing(capsys):
    def writes(x):
        print("called")
        x.add_(1)
        return torch.rand(2, device=x.device)

    x, recorder = torch.zeros(3), Recorder()
    torch.manual_seed(1)
    got = recorder.watch("f", writes)(x)
    after = torch.rand(2)
    torch.manual_seed(1)
    assert torch.equal(torch.cat([got, after]), torch.cat([torch.rand(2), torch.rand(2)]))
    assert x.tolist() == [1, 1, 1]
    assert capsys.readouterr().out == "called\n"
