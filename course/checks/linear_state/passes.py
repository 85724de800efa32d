"""Drive a student's HybridCache by a toy pass, and find the first operation that went wrong.

The toy pass computes nothing: rows and states are numbers drawn for the tokens that they stand for. So
whatever comes back can be told by its tokens, and no other answer of the lesson is needed. An operation
is a name, the number of a cache, and what it is given:

    ("new", 0, places)            a cache; a number that was used is used anew
    ("feed", 0, tokens)           a pass over these tokens, advanced
    ("start", 0, tokens)          a pass that is not advanced
    ("advance", 0, n)             what was started counts after all
    ("checkpoint", 0, None), ("truncate", 0, n), ("reset", 0, None)

A lesson's check says at what it looks, so that one mistake does not fail all of them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.caches import USED_AGAIN
from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import HOW_MUCH_ROOM, WHICH_EXCEPTION, WHICH_LINE, outcome_in_words
from course.checks.counts import in_words, plain
from course.checks.recorder import given
from course.checks.recording import type_name
from course.given.hybrid import HybridSizes
from course.model.cache import CacheFull

Operation = tuple[str, int, Any]
BETWEEN = "; "
"""Between the parts of what is told of a cache."""
SIZES = (2, 6, 2, 4, 3, 5, 3)
"""G, D, key heads, value heads, K, V and the width, of the caches here."""


def make_series(
    operations: Sequence[Operation],
    full: Sequence[bool] = (False, True, False),
    batch: int = 2,
    dtype: str = "float32",
    width: int = SIZES[-1],
    looks: Sequence[str] = ("rows",),
    reuses: bool = False,
) -> Challenge:
    """Write down a model's layers and operations on its caches.

    Args:
        full: for each layer, whether it keeps rows.
        width: of the convolution; a tail has a row less.
        looks: at what, beside lengths and states: "rows", "checkpoints".
        reuses: whether the owner of a tensor overwrites it once it was handed over.
    """
    sizes = [full.count(False), full.count(True), *SIZES[:-1], width]
    about = {"sizes": sizes, "full": list(full), "batch": batch, "dtype": dtype}
    how = {"looks": list(looks), "reuses": reuses}
    return {**about, **how, "operations": list(operations)}


# --- the numbers of tokens ------------------------------------------------------------------------


@cache
def numbers_of(
    kind: str, layer: int, tokens: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[np.ndarray, bytes]:
    """Compute the numbers that stand for some tokens in a layer, by a hash of these: whole ones of 12
    bits, exact in float16; and the key by which they are known again. Those of no tokens are zeros, as
    in a new cache."""
    size = np.dtype("<i2").itemsize * math.prod(shape)
    text = f"{kind} {layer} {tokens}".encode()
    data = hashlib.shake_128(text).digest(size) if tokens else bytes(size)
    numbers = (np.frombuffer(data, "<i2") >> 4).reshape(shape).astype(np.float64)
    return numbers, _key(kind, layer, numbers.tobytes())


class Text:
    """Follow the tokens and the checkpoints of one cache."""

    def __init__(self, places: int) -> None:
        self.places, self.held, self.pending, self.checkpoints = places, [], [], []

    def outcome(self, name: str, what: Any) -> str:
        """Tell what an operation must come to."""
        if name in ("feed", "start"):
            return "CacheFull" if len(self.held) + len(what) > self.places else "returned"
        if name != "truncate":
            return "returned"
        if not 0 <= what <= len(self.held):
            return "ValueError"
        return "returned" if what in (0, len(self.held), *self.checkpoints) else "CannotGoBack"

    def take(self, name: str, what: Any) -> None:
        """Change as an operation that is not refused."""
        if name == "checkpoint":
            self.checkpoints = sorted({*self.checkpoints, len(self.held)} - {0})
            return
        if name == "feed":
            self.held = self.held + list(what)
        elif name == "advance":
            self.held = self.held + self.pending
        elif name in ("truncate", "reset"):
            self.held = self.held[: what or 0]
            self.checkpoints = [n for n in self.checkpoints if n <= len(self.held)]
        self.pending = list(what) if name == "start" else []


class Toy:
    """Caches of one student, fed by the toy pass; tells whatever comes back by its tokens."""

    def __init__(self, student: SimpleNamespace, series: Challenge) -> None:
        self.student, self.series = student, series
        self.sizes = HybridSizes(*series["sizes"])
        self.dtype, B = getattr(torch, series["dtype"]), series["batch"]
        sizes = self.sizes
        self.shapes = {
            "S": (B, sizes.value_heads, sizes.key_dim, sizes.value_dim),
            "t": (B, sizes.width - 1, sizes.channels),
            "k": (B, sizes.n_kv_heads, sizes.head_dim),
            "v": (B, sizes.n_kv_heads, sizes.head_dim),
        }
        self.caches: list[Any] = []
        self.texts: list[Text] = []  # what each cache was fed, for the toy's own states
        self.told: dict[bytes, str] = {}  # numbers that were handed over, by the words for them

    def drawn(self, kind: str, layer: int, tokens: Sequence[int], words: str) -> np.ndarray:
        """Return the numbers of tokens, and remember what they are to be called."""
        numbers, key = numbers_of(kind, layer, tuple(tokens), self.shapes[kind])
        self.told[key] = words
        return numbers

    def make(self, places: int, **device: Any) -> Any:
        arguments = self.sizes, list(self.series["full"]), self.series["batch"], places
        return self.student.HybridCache(*arguments, dtype=self.dtype, **device)

    def attempt(self, operation: Operation) -> Evidence:
        """Do an operation; record what it came to."""
        name, number, what = operation
        record: Evidence = {"outcome": "returned", "words": "", "rows": ""}
        if name == "new":
            self.caches[number : number + 1] = [None]
            self.texts[number : number + 1] = [Text(what)]
        try:
            if name == "new":
                self.caches[number] = self.make(what)
            elif name in ("feed", "start"):
                record["rows"] = self.run_pass(number, what, advanced=name == "feed")
            else:
                getattr(self.caches[number], name)(*([] if what is None else [what]))
                self.texts[number].take(name, what)
        except NotImplementedError:
            raise
        except Exception as error:
            outcome = "CacheFull" if isinstance(error, CacheFull) else type(error).__name__
            record |= {"outcome": outcome, "words": f"{error}"[:80]}
        return {**record, **self.look()}

    def run_pass(self, number: int, tokens: Sequence[int], advanced: bool) -> str:
        """Feed tokens as a model does, layer by layer; tell which rows came back."""
        cache, past = self.caches[number], self.texts[number].held
        text, rows = [*past, *tokens], []
        for layer, is_full in enumerate(self.series["full"]):
            if is_full:
                k, v = (self.rows_of(kind, layer, past, tokens) for kind in "kv")
                returned = cache.append(layer, k, v)
                if "rows" in self.series["looks"]:
                    rows.append(f"layer {layer} {self.tell_rows(layer, returned)}")
                handed = (k, v)
            else:
                cache.state(layer)
                both = (self.drawn(kind, layer, text, _words(text)) for kind in "St")
                handed = tuple(given(numbers, self.dtype) for numbers in both)
                cache.keep(layer, *handed)
            for tensor in handed if self.series["reuses"] else ():
                tensor.fill_(USED_AGAIN)
        if advanced:
            cache.advance(len(tokens))
        self.texts[number].take("feed" if advanced else "start", tokens)
        return BETWEEN.join(rows)

    def rows_of(self, kind: str, layer: int, past: list[int], tokens: Sequence[int]) -> Tensor:
        """Make the keys or values (B, G, T, D) of new tokens: of each by its place and itself."""
        rows = [
            self.drawn(kind, layer, (place, token), f"{token}")
            for place, token in enumerate(tokens, len(past))
        ]
        return given(np.stack(rows, axis=2), self.dtype)

    def tell_rows(self, layer: int, returned: Any) -> str:
        """Tell of which tokens keys and values are, or what they are."""
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            return f"{in_words(returned)} in the place of keys and values"
        told, one = [], self.shapes["k"]
        for kind, rows in zip("kv", returned, strict=True):
            is_four = isinstance(rows, Tensor) and rows.dim() == 4
            if not is_four or (rows.dtype, *rows.shape[:2], rows.shape[3]) != (self.dtype, *one):
                return _kind(rows)
            places = rows.detach().double().numpy().transpose(2, 0, 1, 3)
            keys = [_key(kind, layer, place.tobytes()) for place in places]
            told.append(" ".join(self.told.get(key, "?") for key in keys))
        return told[0] if told[0] == told[1] else f"keys {told[0]}, values {told[1]}"

    def look(self) -> Evidence:
        """Look at all caches: their lengths, what their linear layers hold, and their checkpoints, a list
        that is changed afterwards."""
        told = []
        for held in self.caches:
            if held is None:
                told.append("no cache")
                continue
            parts = [f"{plain(len(held))} tokens"]
            for layer in linear_layers(self.series):
                parts.append(f"layer {layer} {self.tell_state(layer, held.state(layer))}")
            if "checkpoints" in self.series["looks"]:
                listed = held.checkpoints
                is_list = isinstance(listed, list)
                numbers = [plain(n) for n in listed] if is_list else in_words(listed)
                parts.append(f"checkpoints {numbers}")
                if is_list:
                    listed.append(USED_AGAIN)
            told.append(BETWEEN.join(parts))
        return {"caches": told}

    def tell_state(self, layer: int, pair: Any) -> str:
        """Tell of which text state and tail are, or what they are."""
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            return f"{in_words(pair)} in the place of state and tail"
        told = []
        for kind, tensor in zip("St", pair, strict=True):
            is_tensor = isinstance(tensor, Tensor)
            if not is_tensor or (tensor.dtype, tensor.shape) != (self.dtype, self.shapes[kind]):
                return _kind(tensor)
            if not tensor.numel():
                continue
            data = tensor.detach().double().contiguous().numpy().tobytes()
            told.append(self.told.get(_key(kind, layer, data)) or _unknown(np.frombuffer(data)))
            if self.series["reuses"]:
                try:
                    tensor.add_(1).fill_(USED_AGAIN)
                except RuntimeError:
                    return "a tensor that its caller cannot write to"
        return told[0] if told[0] == told[-1] else f"state {told[0]}, tail {told[-1]}"


def linear_layers(series: Challenge) -> list[int]:
    """Return the numbers of the layers that keep a state."""
    return [layer for layer, is_full in enumerate(series["full"]) if not is_full]


OUR_OWN = "numbers that this check wrote"
"""What a state is that its caller has written to."""


def _key(kind: str, layer: int, data: bytes) -> bytes:
    return f"{kind}{layer} ".encode() + data


def _unknown(numbers: np.ndarray) -> str:
    """Say what numbers are that no tokens stand for."""
    if not numbers.any():
        return "after nothing"
    return OUR_OWN if (numbers == USED_AGAIN).all() else "unknown numbers"


def _words(text: Sequence[int]) -> str:
    return f"after {' '.join(map(str, text))}" if text else "after nothing"


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a {type_name(value)} tensor of shape {tuple(value.shape)}"
    return in_words(value)


def probe_passes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Do all operations of every series."""
    series = []
    for one in challenge["series"]:
        toy = Toy(student, one)
        series.append([toy.attempt(operation) for operation in one["operations"]])
    return {"series": series}


def passes_form(challenge: Challenge) -> Evidence:
    """Tell the form of evidence: of each operation, something of all caches that there are by then."""
    return {"series": [list(map(_record_form, follow(one))) for one in challenge["series"]]}


def _record_form(right: Evidence) -> Evidence:
    return {"outcome": str, "words": str, "rows": str, "caches": [str] * len(right["caches"])}


# --- what must be held ----------------------------------------------------------------------------


def follow(series: Challenge) -> Iterator[Evidence]:
    """Yield what must be recorded of each operation."""
    texts: list[Text] = []
    for name, number, what in series["operations"]:
        outcome, rows = "returned", []
        if name == "new":
            texts[number : number + 1] = [Text(what)]
        else:
            outcome = texts[number].outcome(name, what)
            if name in ("feed", "start") and outcome == "returned" and "rows" in series["looks"]:
                told = " ".join(map(str, [*texts[number].held, *what]))
                rows = [f"layer {n} {told}" for n, is_full in enumerate(series["full"]) if is_full]
            if outcome == "returned":
                texts[number].take(name, what)
        caches = [_told(text, series) for text in texts]
        yield {"outcome": outcome, "rows": BETWEEN.join(rows), "caches": caches}


def _told(text: Text, series: Challenge) -> str:
    """Say what a look at a cache of this text must come to."""
    states = [f"layer {layer} {_words(text.held)}" for layer in linear_layers(series)]
    parts = [f"{len(text.held)} tokens", *states]
    if "checkpoints" in series["looks"]:
        parts.append(f"checkpoints {text.checkpoints}")
    return BETWEEN.join(parts)


# --- what is said ---------------------------------------------------------------------------------


def passes_check(name: str, draw: Callable[[int], Challenge], praise: str) -> Check:
    """Make a check of caches that are driven by the toy pass."""

    def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
        for series, records in zip(challenge["series"], evidence["series"], strict=True):
            if wrong := wrong_operation(series, records):
                return failed(wrong)
        return passed(praise)

    return Check(name, ("HybridCache",), draw, probe_passes, verdict, evidence=passes_form)


QUESTIONS = {
    "new": "What has a linear layer before the first token?",
    "feed": "Whose state is that, of which layer, and from when on does it count? Is it a copy?",
    "start": "This pass is under way and may never end. Which state is that after len(cache) tokens?",
    "advance": "Now the pass counts that was under way. What did a refusal before it change?",
    "checkpoint": "Remembering changes nothing. What is remembered, and whose memory is it?",
    "truncate": "After it, all should be as if only these tokens had been fed; if it is refused, as it "
    "was. What is not?",
    "reset": "Then nothing was fed. What was left as it was?",
    "rows": "Where are the rows of new tokens written, in whose storage, and how many are returned?",
    "checkpoints": "After which lengths of this very text is there a state now?",
    "others": "Nothing was done with that cache. What do two of them share?",
}
"""What is asked where an operation goes wrong, or what comes back, or another cache."""


def wrong_operation(series: Challenge, records: list[Evidence]) -> str | None:
    """Say which operation came out wrong first; None where none did."""
    for step, (record, right) in enumerate(zip(records, follow(series), strict=True)):
        if wrong := _wrong_record(series["operations"][step], record, right):
            return f"{in_short(series, step, records)}{wrong}"
    return None


def _wrong_record(operation: Operation, record: Evidence, right: Evidence) -> str | None:
    name, number, _ = operation
    if record["outcome"] != right["outcome"]:
        error = f" ({record['words']})" if record["words"] else ""
        asked = OUTCOMES.get((record["outcome"], right["outcome"]), QUESTIONS[name])
        refuses = KNOWN if name == "truncate" else KNOWN[:2]
        if right["outcome"] == "returned" and record["outcome"] not in refuses:
            asked = WHICH_LINE
        came, due = (outcome_in_words(one["outcome"]) for one in (record, right))
        return f" came to {came}{error}; right is {due}. {asked}"
    if record["rows"] != right["rows"]:
        got, expected = _first_other(record["rows"], right["rows"])
        return f" returned rows: {got}; right is {expected}. {QUESTIONS['rows']}"
    for cache_number, pair in enumerate(zip(record["caches"], right["caches"], strict=True)):
        if pair[0] != pair[1]:
            got, expected = _first_other(*pair)
            other = "" if cache_number == number else f"cache {cache_number} has "
            asked = QUESTIONS[name if cache_number == number else "others"]
            if expected.startswith("checkpoints"):
                asked = QUESTIONS["checkpoints"]
            elif expected.endswith(" tokens"):
                asked = "Which method counts, and when?"
            if OUR_OWN in got or f"{USED_AGAIN}" in got:
                asked = "This check wrote into what it had been given. Whose memory is that?"
            return f", and then {other}{got}; right is {expected}. {asked}"
    return None


def _first_other(got: str, right: str) -> tuple[str, str]:
    """Return the first part that differs, and what is right in its place."""
    pairs = zip_longest(got.split(BETWEEN), right.split(BETWEEN), fillvalue="nothing")
    return next(pair for pair in pairs if pair[0] != pair[1])


WHICH_STATES = (
    "There is a state of this length. Which are always there, and what forgets a checkpoint?"
)
WHICH_REFUSAL = (
    "Which exception is for a number out of 0 … len(self), and which for a length without a state?"
)
WHICH_NUMBERS = "Which of your lines refuses it, and which numbers may it be given?"
OUTCOMES = {
    ("CannotGoBack", "returned"): WHICH_STATES,
    ("returned", "CannotGoBack"): "No state of this length is kept. From what would it be made?",
    ("returned", "CacheFull"): HOW_MUCH_ROOM,
    ("CacheFull", "returned"): "Which places does your cache take for taken?",
    ("ValueError", "CacheFull"): WHICH_EXCEPTION,
    ("CannotGoBack", "ValueError"): WHICH_REFUSAL,
    ("ValueError", "CannotGoBack"): WHICH_REFUSAL,
    ("ValueError", "returned"): WHICH_NUMBERS,
    ("RuntimeError", "CacheFull"): HOW_MUCH_ROOM,
}
KNOWN = ("CacheFull", "CannotGoBack", "ValueError")
"""Exceptions of this lesson; any other stops a line that was not meant to."""
MEANINGS = {
    "feed": "append or keep in every layer, then advance",
    "start": "append or keep in every layer, not advanced",
}


def in_short(series: Challenge, step: int, records: list[Evidence]) -> str:
    """Say which caches these are, what was done up to a step, and what was rightly refused."""
    kinds = ", ".join("full" if is_full else "linear" for is_full in series["full"])
    done = series["operations"][: step + 1]
    shown = [
        operation_text(operation, series)
        + " refused" * (record["outcome"] == right["outcome"] != "returned")
        for operation, record, right in zip(done, records, follow(series), strict=False)
    ][-9:]
    names = [name for name in MEANINGS if any(name == other for other, *_ in done)]
    meaning = "; ".join(f"{name}: {MEANINGS[name]}" for name in names)
    about = (
        f"Layers {kinds}, batch {series['batch']}, {series['dtype']}, width {series['sizes'][-1]}"
    )
    dots = "…, " if len(done) > 9 else ""
    return f"{about}{f' ({meaning})' if meaning else ''}: {dots}{', '.join(shown)}"


def operation_text(operation: Operation, series: Challenge) -> str:
    """Write an operation as a reader would say it."""
    name, number, what = operation
    several = any(number for _, number, _ in series["operations"])
    which = f"cache {number} " if several else ""
    if name == "new":
        return f"{which}new, {what} places"
    if name in ("feed", "start"):
        return f"{which}{name} {' '.join(map(str, what))}"
    return f"{which}{name}({'' if what is None else what})"
