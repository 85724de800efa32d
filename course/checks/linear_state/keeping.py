"""Check what a cache of states keeps from pass to pass, where it goes back to, and what that takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.drawing import draw_split
from course.checks.linear_state.passes import Operation, Text, Toy, make_series, passes_check
from course.checks.weighing import WEIGHT, weigh, wrong_weight


def draw_tokens(rng: np.random.Generator, n: int) -> list[int]:
    """Draw n tokens, no two of them equal."""
    return rng.choice(np.arange(10, 100), n, replace=False).tolist()


def read(script: str, text: list[int], other: Sequence[int] = ()) -> list[Operation]:
    """Read operations such as "new 9, feed abc, checkpoint, 1 new 4, truncate 3": letters stand for the
    tokens of a text, capitals for those of another; a number in front names another cache than 0."""
    tokens = {chr(ord("a") + n): token for n, token in enumerate(text)}
    tokens |= {chr(ord("A") + n): token for n, token in enumerate(other)}
    operations: list[Operation] = []
    for words in script.split(", "):
        number, name, *what = words.split() if words[0].isdigit() else ("0", *words.split())
        if name in ("feed", "start"):
            operations.append((name, int(number), [tokens[letter] for letter in what[0]]))
        else:
            operations.append((name, int(number), int(what[0]) if what else None))
    return operations


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
        ends = np.cumsum(split).tolist()
        feeds = [("feed", 0, tokens[end - n : end]) for n, end in zip(split, ends, strict=True)]
        models.append(make_series([("new", 0, 7), *feeds], reuses=True, **kind))
    other = draw_tokens(rng, 9)
    never = "new 9, start AB, feed abc, start CD, start E, feed de"
    no_room = "new 5, feed abc, feed def, feed de, feed f"
    turns = "new 6, 1 new 8, feed ab, 1 feed ABC, 1 start F, feed cde, 1 feed D, new 4, 1 feed E, feed FG"
    later = [read(script, tokens, other) for script in (never, no_room, turns)]
    return {"series": [*models, *(make_series(operations, reuses=True) for operations in later)]}


every_split_keeps_the_same = passes_check(
    "every_split_keeps_the_same",
    draw_splits,
    "Rows, states and tails are those of the tokens held, however a text is cut.",
)


# --- back -----------------------------------------------------------------------------------------

LENGTH = 8


def draw_back(seed: int) -> Challenge:
    """Draw a text with three sets of checkpoints, and a way back to every length. Where there is one, it
    goes on from there with other tokens, back once more, and on with the old ones."""
    rng = np.random.default_rng([seed, 1])
    drawn = sorted(rng.choice(np.arange(1, LENGTH), 2, replace=False).tolist())
    series = []
    for checkpoints in ([], [3], [*drawn, LENGTH]):
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
)


def draw_refused(seed: int) -> Challenge:
    """Draw refusals of every kind, and what must still be there after each."""
    text = draw_tokens(np.random.default_rng([seed, 2]), 12)
    begun, series = "new 9, feed ab, checkpoint, feed cde, checkpoint, feed fg", []
    for refused in (*(f"truncate {n}" for n in (3, 1, 6, 8, -1)), "feed hij"):
        script = f"{begun}, {refused}, feed h, truncate 5, feed ij, truncate 2, feed kl"
        series.append(make_series(read(script, text), looks=["checkpoints"]))
    for n in (3, 8):
        script = f"{begun}, start h, truncate {n}, advance 1, truncate 5, start i, advance 1"
        series.append(make_series(read(script, text), looks=["checkpoints"]))
    return {"series": series}


a_refusal_changes_nothing = passes_check(
    "a_refusal_changes_nothing",
    draw_refused,
    "What is refused leaves rows, states, tails and checkpoints as they were.",
)


def draw_checkpoints(seed: int) -> Challenge:
    """Draw checkpoints that are made twice, at 0, during a pass, and of texts of which something was
    taken back since."""
    rng = np.random.default_rng([seed, 3])
    text, other = draw_tokens(rng, 9), draw_tokens(rng, 9)
    listed = (
        "new 14, checkpoint, feed abc, checkpoint, checkpoint, feed d, feed ef, checkpoint, feed g"
    )
    two = "1 new 9, 1 feed ABCDEF, 1 checkpoint, 1 feed G, truncate 6, 1 truncate 6, 1 new 9"
    scripts = (
        listed,
        f"{listed}, truncate 3, feed ABC, truncate 3, feed DEF, checkpoint, feed GH, truncate 6",
        f"{listed}, truncate 3, feed ABCDE, truncate 6",
        "new 14, feed abc, start AB, checkpoint, feed de, truncate 3, feed def",
        f"{listed}, reset, feed ABCDEFG, truncate 6, reset, feed ab",
        f"{listed}, truncate 0, feed ABCDEF, checkpoint, feed G, truncate 6",
        f"{listed}, {two}",
    )
    operations = [read(script, text, other) for script in scripts]
    return {"series": [make_series(each, looks=["checkpoints"]) for each in operations]}


checkpoints_are_of_this_text = passes_check(
    "checkpoints_are_of_this_text",
    draw_checkpoints,
    "Each checkpoint is a state of the text that is held; those of words taken back are forgotten.",
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
        cases.append({**case, "tokens": draw_tokens(rng, 6), "back": made > 2})
    return {"cases": cases}


def probe_weights(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Weigh a cache of each case once it was fed, with its checkpoints behind it."""
    weights = []
    for case in challenge["cases"]:
        about = {name: case[name] for name in ("full", "batch", "dtype")}
        toy = Toy(student, make_series([], **about))

        def fill(cache: Any, toy: Toy = toy, case: Challenge = case) -> None:
            toy.caches, toy.texts = [cache], [Text(case["places"])]
            for number, token in enumerate(case["tokens"]):
                toy.run_pass(0, [token], advanced=True)
                if number < case["checkpoints"]:
                    cache.checkpoint()
                    cache.checkpoint()
            if case["back"]:
                cache.truncate(2)
                toy.texts[0].take("truncate", 2)
                toy.run_pass(0, case["tokens"][-2:], advanced=True)

        weights.append(weigh(partial(toy.make, case["places"]), fill))
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
            f"{case['batch']}, {case['places']} places, {case['dtype']}, checkpoints: {left}. Rows take "
            f"{rows:,} bytes, states and tails {state:,} for each length."
        )
        if weight["empty"] != rows + state:
            return failed(
                f"{where} nbytes() of a new cache gives {weight['empty']}; right is {rows + state:,}. "
                f"Which tensors are there before the first token, and of how many bytes is each number?"
            )
        full = {**weight, "empty": weight["full"]}
        if wrong := wrong_weight(full, rows + state * (1 + left), when=["full"]):
            return failed(f"{where} After its passes, {wrong}")
    return passed("A checkpoint takes the states and tails of its length once more, and no rows.")
