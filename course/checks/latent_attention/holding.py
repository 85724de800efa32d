"""Check the cache of rows as a container: what goes in comes back, a full one refuses, it goes back.

What is drawn are series of operations on caches of 9 places; the verdict follows which tokens are held.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.counts import in_words
from course.checks.recorder import given
from course.measure.allocations import watch_new_tensors
from course.model.config import GPTConfig

LAYERS, BATCH, RANK, ROPE, PLACES = 3, 2, 5, 4, 9
WIDTH = RANK + ROPE
CONFIG = GPTConfig(30, LAYERS, 24, 4, 4, 40, max_seq_len=8192)
USED_AGAIN = 99.0
"""What the caller writes over its tensors once a cache has them; no drawn number is as large."""
CHANGED = "arguments were changed"
DTYPES = ("float32", "float64", "float16")
Operation = tuple[str, int, int]
"""("feed", first, n): n tokens from number `first` on; ("truncate", 0, n); ("reset", 0, 0); and
("new", 0, 0): go on with a new cache."""


def draw_rows(rng: np.random.Generator) -> np.ndarray:
    """Draw the rows of 20 tokens, (L, B, 20, rank + R)."""
    return rng.normal(size=(LAYERS, BATCH, 20, WIDTH)).astype(np.float32)


def new_cache(
    student: SimpleNamespace, places: int = PLACES, dtype: str = "float32", batch: int = BATCH
) -> Any:
    """Make the student's cache."""
    return student.LatentKVCache(CONFIG, batch, places, RANK, ROPE, dtype=getattr(torch, dtype))


def feed(cache: Any, rows: np.ndarray, dtype: str = "float32") -> list[np.ndarray | str]:
    """Append rows (L, B, T, rank + R) to every layer and advance; then use their memory again.

    Returns:
        What each layer returned, as it is when all have returned; in words what is no tensor.
    """
    c = given(rows[..., :RANK], getattr(torch, dtype))  # (L, B, T, rank)
    k_rope = given(rows[:, :, None, :, RANK:], getattr(torch, dtype))  # (L, B, 1, T, R)
    as_given = c.clone(), k_rope.clone()
    returned = [cache.append(layer, c[layer], k_rope[layer]) for layer in range(len(rows))]
    kept = torch.equal(c, as_given[0]) and torch.equal(k_rope, as_given[1])
    cache.advance(rows.shape[2])
    copies = [_copied(got) for got in returned]
    c.fill_(USED_AGAIN), k_rope.fill_(USED_AGAIN)
    return copies if kept else [CHANGED] * len(rows)


def _copied(got: Any) -> np.ndarray | str:
    return got.detach().clone().numpy() if isinstance(got, torch.Tensor) else in_words(got)


def run(
    student: SimpleNamespace,
    challenge: Challenge,
    operations: list[Operation],
    dtype: str = "float32",
    beside: bool = False,
) -> list[Evidence]:
    """Do the operations on one cache, and record what each came to.

    Args:
        beside: after each block, a second cache of the same sizes is fed the negatives; otherwise each
            block's tokens, with those held before, are also fed at once to a new cache.
    """
    cache, other = new_cache(student, dtype=dtype), new_cache(student, dtype=dtype)
    records: list[Evidence] = [
        {"came": "returned", "length": len(cache), "returned": [], "fresh": []}
    ]
    held: list[int] = []
    for name, first, n in operations:
        returned: list[np.ndarray | str] = []
        fresh: list[np.ndarray | str] = []
        rows = challenge["rows"][:, :, first : first + n]

        def operate(cache=cache, name=name, n=n, rows=rows, returned=returned) -> None:
            if name == "feed":
                returned += feed(cache, rows, dtype)
            elif name == "truncate":
                cache.truncate(n)
            elif name == "reset":
                cache.reset()

        if name == "new":
            cache = new_cache(student, dtype=dtype)
        came = outcome(operate)
        if name == "feed" and came != "returned":
            _append_to_the_others(cache, rows, dtype)
        _, held = follow(name, first, n, held)
        if name == "feed" and came == "returned" and not beside:
            at_once = new_cache(student, dtype=dtype)
            outcome(
                lambda rows=challenge["rows"][:, :, held], into=at_once, out=fresh: out.extend(
                    feed(into, rows, dtype)
                )
            )
        records.append({"came": came, "length": len(cache), "returned": returned, "fresh": fresh})
        if beside:
            other.reset()
            outcome(lambda: feed(other, -challenge["rows"][:, :, :PLACES], dtype))
    return records


def _append_to_the_others(cache: Any, rows: np.ndarray, dtype: str) -> None:
    """Append what layer 0 refused to the other layers."""
    kind = getattr(torch, dtype)
    c, k_rope = given(rows[..., :RANK], kind), given(rows[:, :, None, :, RANK:], kind)
    for layer in range(1, LAYERS):
        outcome(lambda layer=layer: cache.append(layer, c[layer], k_rope[layer]))


ROWS = Each((np.ndarray, str))
RECORD = {"came": str, "length": int, "returned": ROWS, "fresh": ROWS}


def follow(name: str, first: int, n: int, held: list[int]) -> tuple[str, list[int]]:
    """Tell what an operation must come to, and which tokens are held afterwards."""
    if name in ("reset", "new"):
        return "returned", []
    if name == "truncate":
        return ("returned", held[:n]) if 0 <= n <= len(held) else ("ValueError", held)
    if len(held) + n > PLACES:
        return "CacheFull", held
    return "returned", held + list(range(first, first + n))


def wrong_operation(
    challenge: Challenge,
    operations: list[Operation],
    records: list[Evidence],
    dtype: str = "float32",
    beside: bool = False,
) -> str | None:
    """Say which operation came out wrong first. What rows have to look like is asked `beside` a second
    cache; otherwise they must be those of a new cache, however they look."""
    if records[0]["length"] != 0:
        return f"A new cache holds {records[0]['length']} tokens. What was put into it?"
    held: list[int] = []
    done: list[str] = []
    for (name, first, n), seen in zip(operations, records[1:], strict=True):
        before = len(held)
        came, held = follow(name, first, n, held)
        done = [*done[-4:], f"{name}({n})"]
        if name in ("new", "reset"):
            done = ["reset()"] * (name == "reset")
        case = f"A cache of {PLACES} places, {dtype}: {', '.join(done)}"
        if seen["came"] != came:
            return (
                f"{case}: {seen['came']}, wanted is {came}; {before} tokens were held before. "
                f"(feed(n): append n tokens to each of {LAYERS} layers, then advance.) "
                f"{_ask_about(name, came)}"
            )
        if seen["length"] != len(held):
            return (
                f"{case}: then len(cache) is {seen['length']}, not {len(held)}. "
                f"Which method counts, and how often is it called?"
            )
        if name == "feed" and came == "returned" and not beside:
            if not _alike(seen["returned"], seen["fresh"]):
                return (
                    f"{case}: it returned other rows than a new cache that is fed the same "
                    f"{len(held)} tokens at once. What was left from before, or lost?"
                )
        elif name == "feed" and came == "returned":
            wanted = challenge["rows"][:, :, held].astype(dtype)
            if len(seen["returned"]) != len(wanted):
                return f"{case}: the rows of a layer did not come back."
            for layer, (got, want) in enumerate(zip(seen["returned"], wanted, strict=True)):
                if wrong := wrong_rows(got, want, layer):
                    return f"{case}: {wrong}"
    return None


def _alike(got: list[np.ndarray | str], wanted: list[np.ndarray | str]) -> bool:
    """Tell whether two lists hold the same rows, NaN where the other has NaN."""
    if len(got) != len(wanted):
        return False
    for one, other in zip(got, wanted, strict=True):
        if isinstance(one, str) or isinstance(other, str):
            if one is not other and one != other:
                return False
        elif one.shape != other.shape or not np.array_equal(one, other, equal_nan=True):
            return False
    return True


def _ask_about(name: str, came: str) -> str:
    if name == "truncate":
        return "Which numbers of tokens can be kept?"
    if came == "CacheFull":
        return "How many places are left, and how many are needed?"
    return "Which places does your cache take for taken?"


def wrong_rows(got: np.ndarray | str, wanted: np.ndarray, layer: int) -> str | None:
    """Say how the rows (B, S, rank + R) that a layer returned differ from those stored."""
    if isinstance(got, str) and got == CHANGED:
        return "append wrote into the latents or keys it was given. Whose memory are they?"
    if isinstance(got, str):
        return f"layer {layer} returned {got}; wanted are the rows so far. What do you return?"
    if got.shape != wanted.shape:
        return (
            f"layer {layer} returned shape {got.shape}, wanted is (B, S, rank + R) = {wanted.shape}. "
            f"How many tokens are held or new, and which axes has a row?"
        )
    if got.dtype != wanted.dtype:
        return (
            f"layer {layer} returned {got.dtype} from a {wanted.dtype} cache. What is its storage "
            f"made of?"
        )
    wrong = np.argwhere(got != wanted)
    if not len(wrong):
        return None
    row, token, number = min(wrong.tolist(), key=lambda place: (place[1], place[0], place[2]))
    part = (
        f"number {number} of the latent" if number < RANK else f"number {number - RANK} of the key"
    )
    return (
        f"layer {layer} returned other rows than were stored: first at batch row {row}, token {token} "
        f"of {wanted.shape[1]}, {part} (rank {RANK}, R {ROPE}; got "
        f"{got[row, token, number]:.3g}, stored {wanted[row, token, number]:.3g}). "
        f"{_ask_about_rows(got, wanted)}"
    )


def _ask_about_rows(got: np.ndarray, wanted: np.ndarray) -> str:
    other = got[got != wanted]
    if (other == USED_AGAIN).any():
        return "After advance the caller wrote 99 over its own tensors. Is what you keep a copy?"
    if (np.concatenate([got[..., ROPE:], got[..., :ROPE]], axis=-1) == wanted).all():
        return "Both parts are there. In which order?"
    if (other == -wanted[got != wanted]).all():
        return "Another cache was given those. What do two caches share?"
    return "Which place, and which layer's storage, does this block belong to?"


# --- what goes in comes back ----------------------------------------------------------------------


def draw_returns(seed: int) -> Challenge:
    """Draw blocks that fit, for caches of two dtypes, and the length of a long text."""
    rng = np.random.default_rng(seed)
    cuts = np.flatnonzero(rng.random(PLACES - 1) < 0.5) + 1
    split = np.diff([0, *cuts, PLACES]).tolist()
    starts = np.cumsum([0, *split[:-1]]).tolist()
    return {
        "rows": draw_rows(rng),
        "operations": [
            ("feed", start, n) for start, n in zip(starts, map(int, split), strict=True)
        ],
        "dtypes": ["float32", DTYPES[1 + seed % 2]],
        "long": int(rng.integers(4100, 4400)),
    }


def probe_returns(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Append block after block, in each dtype; then one token to a long text of one row."""
    series = [
        run(student, challenge, challenge["operations"], dtype, beside=True)
        for dtype in challenge["dtypes"]
    ]
    n = challenge["long"]
    long = np.arange(n * WIDTH, dtype=np.float32).reshape(1, 1, n, WIDTH)
    cache = student.LatentKVCache(
        GPTConfig(30, 1, 24, 4, 4, 40, max_seq_len=8192), 1, n + 7, RANK, ROPE
    )
    first = outcome(lambda: feed(cache, long[:, :, :-1]))
    if first != "returned":
        return {"series": series, "long": first, "written": 0}
    c, k_rope = torch.tensor(long[0, :, -1:, :RANK]), torch.tensor(long[0, :, None, -1:, RANK:])
    with watch_new_tensors(c, k_rope) as made:
        got = cache.append(0, c, k_rope)
    written = sum(tensor.numbers for tensor in made.tensors if tensor.made_by != "elsewhere")
    return {"series": series, "long": _copied(got), "written": written}


def returns_form(challenge: Challenge) -> Evidence:
    records = [RECORD] * (1 + len(challenge["operations"]))
    return {"series": [records] * 2, "long": (np.ndarray, str), "written": int}


@check("LatentKVCache", draw=draw_returns, probe=probe_returns, evidence=returns_form)
def rows_come_back(challenge: Challenge, evidence: Evidence) -> Verdict:
    for dtype, records in zip(challenge["dtypes"], evidence["series"], strict=True):
        if wrong := wrong_operation(
            challenge, challenge["operations"], records, dtype, beside=True
        ):
            return failed(wrong)
    n, got = challenge["long"], evidence["long"]
    case = f"A cache of {n + 7:,} places and one text, 1 token appended to {n - 1:,}"
    if isinstance(got, str):
        return failed(f"{case}: {got}. All of it fits. Which number in your code is the limit?")
    wanted = np.arange(n * WIDTH, dtype=np.float32).reshape(1, n, WIDTH)
    if got.shape != wanted.shape or (got != wanted).any():
        return failed(
            f"{case}: rows of shape {got.shape} came back, and not the {wanted.shape} that were "
            f"stored. Where does your cache end?"
        )
    if evidence["written"] > wanted.size // 4:
        return failed(
            f"{case}: {evidence['written']:,} numbers were written into new memory, and the row of 1 "
            f"token has {WIDTH}. Which of your lines copies older rows?"
        )
    blocks = [n for _, _, n in challenge["operations"]]
    return passed(
        f"Blocks of {blocks} tokens come back as [latent | rotated key], in every layer, uncopied."
    )


# --- full, and back -------------------------------------------------------------------------------


def draw_full(seed: int) -> Challenge:
    """Draw caches that are filled with blocks of which many do not fit; at first exactly full, and one
    more."""
    rng = np.random.default_rng(seed)
    operations: list[Operation] = [("feed", 0, 5), ("feed", 6, 5), ("feed", 5, 4), ("feed", 9, 1)]
    for _ in range(4):
        operations.append(("new", 0, 0))
        for _ in range(6):
            operations.append(("feed", int(rng.integers(0, 12)), int(rng.integers(1, 6))))
    return {"rows": draw_rows(rng), "operations": operations}


def draw_back(seed: int) -> Challenge:
    """Draw operations that go back and on again, all feeds of which fit; some truncates that must be
    refused."""
    rng = np.random.default_rng(seed)
    keep = int(rng.choice([2, 4]))  # of 6: keeping 3 would look like dropping 3
    operations: list[Operation] = [("feed", 0, 6), ("truncate", 0, 7), ("truncate", 0, -1)]
    operations += [("truncate", 0, 6), ("truncate", 0, keep), ("feed", 8, 3), ("reset", 0, 0)]
    operations += [("feed", 10, 6), ("truncate", 0, 0), ("feed", 3, 2)]
    held = 2
    for _ in range(16):
        name = str(rng.choice(["feed", "feed", "feed", "truncate", "truncate", "reset"]))
        n = int(rng.integers(1, 4))
        if name == "feed" and held + n >= PLACES:  # whether it can be filled is asked elsewhere
            name = "truncate"
        if name == "feed":
            operations.append(("feed", int(rng.integers(0, 12)), n))
            held += n
        elif name == "truncate":
            n = int(rng.integers(-1, held + 2))
            operations.append(("truncate", 0, n))
            held = n if 0 <= n <= held else held
        else:
            operations.append(("reset", 0, 0))
            held = 0
    return {"rows": draw_rows(rng), "operations": operations}


def probe_operations(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"records": run(student, challenge, challenge["operations"])}


def operations_form(challenge: Challenge) -> Evidence:
    return {"records": [RECORD] * (1 + len(challenge["operations"]))}


@check("LatentKVCache", draw=draw_full, probe=probe_operations, evidence=operations_form)
def full_changes_nothing(challenge: Challenge, evidence: Evidence) -> Verdict:
    wrong = wrong_operation(challenge, challenge["operations"], evidence["records"])
    return failed(wrong) if wrong else passed("It fills to the last place, and a refusal is whole.")


@check("LatentKVCache", draw=draw_back, probe=probe_operations, evidence=operations_form)
def can_go_back(challenge: Challenge, evidence: Evidence) -> Verdict:
    wrong = wrong_operation(challenge, challenge["operations"], evidence["records"])
    praise = "truncate(n) keeps the first n tokens, reset() none, and both can be built on."
    return failed(wrong) if wrong else passed(praise)
