"""Check what a cache of states keeps from pass to pass, where it goes back to, and what that takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.drawing import draw_split
from course.checks.linear_state.passes import (
    Operation,
    Toy,
    make_series,
    passes_check,
)
from course.checks.weighing import WEIGHT, weigh, wrong_weight

QUESTIONS = {
    "new": "What has a linear layer before the first token?",
    "feed": "Whose state is that, of which layer, and from when on does it count? Is it a copy?",
    "start": "This pass is under way and may never end. Which state is that after len(cache) tokens?",
    "checkpoint": "Remembering changes nothing. What is remembered, and whose memory is it?",
    "truncate": "After it, all should be as if only these tokens had been fed; if it is refused, as it "
    "was. What is not?",
    "reset": "Then nothing was fed. What was left as it was?",
    "rows": "Where are the rows of new tokens written, in whose storage, and how many are returned?",
    "checkpoints": "After which lengths of this very text is there a state now?",
    "others": "Nothing was done with that cache. What do two of them share?",
}


def draw_tokens(rng: np.random.Generator, n: int) -> list[int]:
    """Draw n tokens, no two of them equal."""
    return rng.choice(np.arange(10, 100), n, replace=False).tolist()


def cut(tokens: list[int], split: list[int]) -> list[list[int]]:
    """Cut tokens into pieces of these lengths."""
    ends = np.cumsum(split).tolist()
    return [tokens[end - n : end] for n, end in zip(split, ends, strict=True)]


# --- passes alone ---------------------------------------------------------------------------------


def draw_splits(seed: int) -> Challenge:
    """Draw texts that are cut in several ways, for models of several kinds; passes that never end, passes
    that find no room; and two caches by turns."""
    rng = np.random.default_rng(seed)
    tokens, models = draw_tokens(rng, 7), []
    kinds: list[dict[str, Any]] = [
        {"full": (False,), "batch": 1},
        {},
        {"full": (True, False, True, False), "dtype": "float16"},
        {"full": (False, True), "dtype": "float64", "width": 1},
        {"full": (False, False, True), "batch": 1, "width": 2},
    ]
    splits = [[7], [1] * 7, [2, 1, 4], draw_split(rng, 7), [3, 4]]
    for kind, split in zip(kinds, splits, strict=True):
        feeds: list[Operation] = [("feed", 0, part) for part in cut(tokens, split)]
        models.append(make_series([("new", 0, 7), *feeds], reuses=True, **kind))
    other = draw_tokens(rng, 9)
    never: list[Operation] = [
        ("new", 0, 9),
        ("start", 0, other[:2]),
        ("feed", 0, tokens[:3]),
        ("start", 0, other[2:4]),
        ("start", 0, other[4:5]),
        ("feed", 0, tokens[3:5]),
    ]
    no_room: list[Operation] = [("new", 0, 5), ("feed", 0, tokens[:3]), ("feed", 0, tokens[3:6])]
    no_room += [("feed", 0, tokens[3:5]), ("feed", 0, tokens[5:6])]
    turns: list[Operation] = [("new", 0, 6), ("new", 1, 8)]
    turns += [("feed", 0, tokens[:2]), ("feed", 1, other[:3]), ("start", 1, other[5:6])]
    turns += [("feed", 0, tokens[2:5]), ("feed", 1, other[3:4]), ("new", 0, 4)]
    turns += [("feed", 1, other[4:5]), ("feed", 0, other[5:7])]
    later = [make_series(operations, reuses=True) for operations in (never, no_room, turns)]
    return {"series": [*models, *later]}


every_split_keeps_the_same = passes_check(
    "every_split_keeps_the_same",
    draw_splits,
    "Rows, states and tails are those of the tokens held, however a text is cut.",
    QUESTIONS,
)


# --- back -----------------------------------------------------------------------------------------

LENGTH = 12


def draw_back(seed: int) -> Challenge:
    """Draw a text with four sets of checkpoints, and a way back to every length. Where there is one, it
    goes on from there with other tokens, back once more, and on with the old ones."""
    rng = np.random.default_rng([seed, 1])
    drawn = sorted(rng.choice(np.arange(1, LENGTH), 3, replace=False).tolist())
    series = []
    for checkpoints in ([], [3], [2, LENGTH], drawn):
        text, other = draw_tokens(rng, LENGTH), draw_tokens(rng, 2)
        begun: list[Operation] = [("new", 0, LENGTH + 3)]
        ends = sorted({*checkpoints, LENGTH - 1, LENGTH})
        for start, end in zip([0, *ends], ends, strict=False):
            begun.append(("feed", 0, text[start:end]))
            if end in checkpoints:
                begun.append(("checkpoint", 0, None))
        possible = sorted({0, LENGTH, *checkpoints})
        for n in possible:
            operations = [*begun, ("truncate", 0, n), ("feed", 0, other)]
            if n in (0, *checkpoints):
                operations += [("truncate", 0, n), ("feed", 0, other[::-1])]
            series.append(make_series(operations))
        refused = [n for n in range(LENGTH + 1) if n not in possible]
        series.append(make_series([*begun, *(("truncate", 0, n) for n in refused)]))
    return {"series": series}


goes_back_or_refuses = passes_check(
    "goes_back_or_refuses",
    draw_back,
    "To 0, to where it stands and to each checkpoint it goes back; it refuses everything else.",
    QUESTIONS,
)


def draw_refused(seed: int) -> Challenge:
    """Draw refusals of every kind, and what must still be there after each."""
    rng = np.random.default_rng([seed, 2])
    text = draw_tokens(rng, 12)
    begun: list[Operation] = [("new", 0, 9), ("feed", 0, text[:2]), ("checkpoint", 0, None)]
    begun += [("feed", 0, text[2:5]), ("checkpoint", 0, None), ("feed", 0, text[5:7])]
    series = []
    for refused in (
        [("truncate", 0, 3)],
        [("truncate", 0, 1)],
        [("truncate", 0, 6)],
        [("truncate", 0, 8)],
        [("truncate", 0, -1)],
        [("feed", 0, text[7:10])],
    ):
        for back in (5, 2):
            operations = [*begun, *refused, ("feed", 0, text[7:8])]
            operations += [("truncate", 0, back), ("feed", 0, text[8:10])]
            series.append(make_series(operations, looks=["checkpoints"]))
    return {"series": series}


a_refusal_changes_nothing = passes_check(
    "a_refusal_changes_nothing",
    draw_refused,
    "What is refused leaves rows, states, tails and checkpoints as they were.",
    QUESTIONS,
)


def draw_checkpoints(seed: int) -> Challenge:
    """Draw checkpoints that are made twice, at 0, during a pass, and of texts of which something was
    taken back since."""
    rng = np.random.default_rng([seed, 3])
    text, other = draw_tokens(rng, 9), draw_tokens(rng, 9)
    new: Operation = ("new", 0, 14)
    check_: Operation = ("checkpoint", 0, None)
    listed: list[Operation] = [new, check_, ("feed", 0, text[:3]), check_, check_]
    listed += [("feed", 0, text[3:4]), ("feed", 0, text[4:6]), check_, ("feed", 0, text[6:7])]
    replaced: list[Operation] = [*listed, ("truncate", 0, 3), ("feed", 0, other[:3])]
    replaced += [("truncate", 0, 3), ("feed", 0, other[3:6]), check_, ("feed", 0, other[6:8])]
    replaced += [("truncate", 0, 6)]
    stale: list[Operation] = [*listed, ("truncate", 0, 3), ("feed", 0, other[:5])]
    under_way: list[Operation] = [new, ("feed", 0, text[:3]), ("start", 0, other[:2]), check_]
    under_way += [("feed", 0, text[3:5]), ("truncate", 0, 3), ("feed", 0, text[3:6])]
    emptied: list[Operation] = [*listed, ("reset", 0, None), ("feed", 0, other[:7])]
    emptied += [("truncate", 0, 6), ("reset", 0, None), ("feed", 0, text[:2])]
    nothing: list[Operation] = [*listed, ("truncate", 0, 0), ("feed", 0, other[:6]), check_]
    nothing += [("feed", 0, other[6:7]), ("truncate", 0, 6)]
    two: list[Operation] = [*listed, ("new", 1, 9), ("feed", 1, other[:6])]
    two += [("checkpoint", 1, None), ("feed", 1, other[6:7]), ("truncate", 0, 6)]
    two += [("truncate", 1, 6), ("new", 1, 9)]
    all_of_them = (listed, replaced, [*stale, ("truncate", 0, 6)], under_way)
    all_of_them = (*all_of_them, emptied, nothing, two)
    series = [make_series(operations, looks=["checkpoints"]) for operations in all_of_them]
    return {"series": series}


checkpoints_are_of_this_text = passes_check(
    "checkpoints_are_of_this_text",
    draw_checkpoints,
    "Each checkpoint is a state of the text that is held; those of words taken back are forgotten.",
    QUESTIONS,
)


# --- what it takes --------------------------------------------------------------------------------


def draw_weights(seed: int) -> Challenge:
    """Draw caches with no, one and several checkpoints, of one text and of several, in each type."""
    rng = np.random.default_rng([seed, 4])
    cases = []
    for dtype, batch, made in (
        ("float32", 1, 0),
        ("float32", 2, 1),
        ("float16", 3, int(rng.integers(2, 5))),
        ("float64", 2, 3),
    ):
        full = [False, True, *rng.permutation([False, True, False]).tolist()]
        case = {"full": full, "batch": batch, "dtype": dtype, "checkpoints": made}
        case["places"] = int(rng.integers(12, 40))
        cases.append({**case, "tokens": draw_tokens(rng, 9), "back": made > 2})
    return {"cases": cases}


def probe_weights(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Weigh a cache of each case once it was fed, with its checkpoints behind it."""
    weights = []
    for case in challenge["cases"]:
        about = {name: case[name] for name in ("full", "batch", "dtype")}
        series = make_series([], **about)
        toy = Toy(student, series)

        def make(places: int = case["places"], toy: Toy = toy, **device: Any) -> Any:
            arguments = toy.sizes, list(toy.series["full"]), toy.series["batch"], places
            return toy.student.HybridCache(*arguments, dtype=toy.dtype, **device)

        def fill(cache: Any, toy: Toy = toy, case: Challenge = case) -> None:
            toy.caches, toy.texts = [cache], [[]]
            for number, token in enumerate(case["tokens"]):
                text = toy.texts[0]
                toy.run_pass(0, [token], advanced=True)
                toy.texts[0] = [*text, token]
                if number < case["checkpoints"]:
                    cache.checkpoint()
                    cache.checkpoint()
            if case["back"]:
                cache.truncate(2)
                toy.texts[0] = toy.texts[0][:2]
                toy.run_pass(0, case["tokens"][-2:], advanced=True)

        weights.append(weigh(partial(make), fill))
    return {"cases": weights}


@check(
    "HybridCache",
    draw=draw_weights,
    probe=probe_weights,
    evidence=lambda challenge: {"cases": [WEIGHT] * len(challenge["cases"])},
)
def a_checkpoint_costs_a_state(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], list[int]]
) -> Verdict:
    """Compare what nbytes() says and what is stored with rows, and a state for each length."""
    for case, weight in zip(challenge["cases"], evidence["cases"], strict=True):
        rows, state = truth(case)
        left = 2 if case["back"] else case["checkpoints"]
        where = (
            f"Layers {', '.join('full' if is_full else 'linear' for is_full in case['full'])}, batch "
            f"{case['batch']}, {case['places']} places, {case['dtype']}, {left} checkpoints: rows take "
            f"{rows:,} bytes, states and tails {state:,} for each length."
        )
        if weight["empty"] != rows + state:
            return failed(
                f"{where} nbytes() of a new cache gives {weight['empty']}; right is {rows + state:,}. "
                f"What is there before the first token?"
            )
        full = {**weight, "empty": weight["full"]}
        if wrong := wrong_weight(full, rows + state * (1 + left), when=["full"]):
            return failed(f"{where} After its passes, {wrong}")
    return passed("A checkpoint takes the states and tails of its length once more, and no rows.")
