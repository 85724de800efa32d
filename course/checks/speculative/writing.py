"""Check writing with guesses: the text, the passes it takes, and the cache that it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, first_wrong_choice, outcome, uncached
from course.checks.drawing import build_model, draw_model, draw_tokens, with_end_next
from course.checks.passes import ARRAY_OR_WORDS, as_array, count_passes, new_cache
from course.checks.recorder import given
from course.minigpt.kv_cache import KVCache, forward_cached
from course.model import MiniGPT

GUESSES = {
    "all right": None,
    "wrong at once": 0,
    "wrong at the second": 1,
    "wrong at the last": -1,
    "none at all": None,
    "one fewer than asked for": None,
}
"""What a draft is like, and the place of its wrong guess; those behind it are right."""


class Guesser:
    """Proposes what a model itself would write, with a wrong guess where its kind says so.

    Args:
        model: a copy of the student's, so that its passes are not counted.
    """

    def __init__(self, model: MiniGPT) -> None:
        self.model = model
        self._next: dict[tuple[int, ...], int] = {}

    def likeliest(self, text: tuple[int, ...]) -> int:
        """The token that follows a text; drafts of all kinds continue the same one."""
        if text not in self._next:
            self._next[text] = int(self.model(torch.tensor([text]))[0, -1].argmax())
        return self._next[text]

    def propose(self, kind: str, earlier: list[int], text: Tensor, k: int) -> Tensor:
        """Draft k tokens, or fewer.

        Args:
            kind: a name of GUESSES.
            earlier: tokens before the text.
        """
        config = self.model.config
        known = (*earlier, *text.reshape(-1).tolist())
        start = len(known)
        k = min(k - (kind == "one fewer than asked for"), config.max_seq_len - start)
        for _ in range(0 if kind == "none at all" else k):
            known += (self.likeliest(known),)
        draft = torch.tensor(known[start:], dtype=torch.int64)
        place = GUESSES[kind]
        if place is not None and len(draft) > max(place, 0):
            draft[place] = (draft[place] + 1) % config.vocab_size
        return draft


class Writer:
    """Has a student's `speculate` write texts by one model.

    Attributes:
        model: whose passes may be counted.
        prompt, result: of the last text.
    """

    def __init__(
        self, student: SimpleNamespace, challenge: Challenge, dtype: torch.dtype = torch.float32
    ) -> None:
        self.model, copy = (build_model(challenge).to(dtype) for _ in range(2))
        self.student, self.guesser = student, Guesser(copy)

    def write(
        self, case: dict[str, Any], cache: KVCache | None = None, earlier: Sequence[int] = ()
    ) -> str:
        """Write one text; say "returned" or the name of the exception."""
        propose = partial(self.guesser.propose, case["kind"], earlier)
        self.prompt, self.result = given(case["prompt"]), None

        def call() -> None:
            self.result = self.student.speculate(
                self.model, propose, self.prompt, case["n_new"], case["K"], cache
            )

        return outcome(call)

    def text(self, *how: Any) -> np.ndarray | str:
        """Write one text, and give it; in words what is none."""
        came = self.write(*how)
        return as_array(self.result) if came == "returned" else came


def _told(case: dict[str, Any]) -> str:
    return (
        f"A prompt of {len(case['prompt'])} tokens, n_new {case['n_new']}, n_draft {case['K']}, guesses "
        f"{case['kind']}"
    )


# --- the text ------------------------------------------------------------------------------------


def draw_cases(seed: int) -> Challenge:
    """Draw a model, a prompt that it continues by `<end>`, and how it is to be continued; last, as the
    longest text that the model can read."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=2, max_seq_len=40)
    length, n_new, K = (int(rng.integers(*pair)) for pair in ((3, 7), (8, 13), (3, 5)))
    prompt = draw_tokens(rng, 1, length, model["config"]["vocab_size"])
    cases = [{"kind": kind, "prompt": prompt[0], "n_new": n_new, "K": K} for kind in GUESSES]
    other = {"kind": "all right", "prompt": prompt[0], "n_new": n_new, "K": K}
    cases += [
        other | {"prompt": prompt[0, :1]},
        other | {"K": 0},
        other | {"K": 1, "kind": "wrong at once"},
        other | {"n_new": 1},
        other | {"n_new": 2},
        other | {"K": 50},
        other | {"K": 50, "kind": "wrong at the second"},
    ]
    long = draw_tokens(rng, 1, 34, model["config"]["vocab_size"])[0]
    cases.append({"kind": "wrong at the second", "prompt": long, "n_new": 6, "K": K})
    return {**with_end_next(model, prompt), "cases": cases}


def probe_texts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Write each text; one also with a model of float64, and none at all."""
    writer, cases = Writer(student, challenge), challenge["cases"]
    texts = [writer.text(case) for case in cases]
    with count_passes(writer.model) as passes:
        none = writer.text(cases[0] | {"n_new": 0})
    shared = isinstance(writer.result, Tensor) and shares_memory(writer.result, writer.prompt)
    return {
        "texts": texts,
        "float64": Writer(student, challenge, torch.float64).text(cases[2]),
        "none": {"text": none, "passes": passes, "own": not shared},
    }


def shares_memory(a: Tensor, b: Tensor) -> bool:
    """Tell whether a tensor lies in the memory of another; one without numbers lies nowhere."""
    return bool(a.numel()) and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@check(
    "speculate",
    draw=draw_cases,
    probe=probe_texts,
    evidence=lambda challenge: {
        "texts": [ARRAY_OR_WORDS] * len(challenge["cases"]),
        "float64": ARRAY_OR_WORDS,
        "none": {"text": ARRAY_OR_WORDS, "passes": Each(int), "own": bool},
    },
    truth=uncached,
)
def every_draft_gives_the_same_text(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Look for the first token that the model would not have written alone."""
    for case, text in zip(challenge["cases"], evidence["texts"], strict=True):
        if wrong := _wrong_text(challenge, case, text, truth, tolerance):
            return failed(wrong)
    double = _wrong_text(challenge, challenge["cases"][2], evidence["float64"], truth, tolerance)
    if double:
        return failed(f"A model of float64. {double}")
    none, prompt = evidence["none"], challenge["cases"][0]["prompt"]
    if isinstance(none["text"], str) or none["text"].tolist() != prompt.tolist():
        return failed(
            "n_new = 0 should give the prompt and nothing else. What does your code do before its loop?"
        )
    if none["passes"]:
        return failed("n_new = 0: something was fed. For whose logits?")
    if not none["own"]:
        return failed("n_new = 0: result and prompt share their memory. Whose tensor is returned?")
    return passed("Whatever was guessed, the text is the model's own.")


def _wrong_text(
    challenge: Challenge,
    case: dict[str, Any],
    text: np.ndarray | str,
    truth: Truth,
    tolerance: float,
) -> str | None:
    P, told = len(case["prompt"]), _told(case)
    size = P + case["n_new"]
    if isinstance(text, str):
        return f"{told}: {text}; wanted is a text of {size} tokens. {_about_stop(text)}"
    if text.shape != (size,) or text.dtype != np.int64:
        return (
            f"{told}: got {text.dtype} of shape {text.shape}, wanted is int64 of shape {(size,)}. "
            f"{'How many tokens does the last pass write?' if text.size > size else 'When is it done?'}"
        )
    V = challenge["config"]["vocab_size"]
    if text[:P].tolist() != case["prompt"].tolist() or text.min() < 0 or text.max() >= V:
        return f"{told}: the text does not begin with the prompt, or has ids outside 0 … {V - 1}."
    wrong = first_wrong_choice(truth(challenge, text[None]), text[None], P, tolerance)
    if not wrong:
        return None
    return (
        f"{told}: new token {wrong.step + 1} is {text[P + wrong.step]}; alone the model writes "
        f"{wrong.likeliest}, whose logit leads by {wrong.lead:.2g}. {_about_token(case, wrong.step)}"
    )


def _about_stop(name: str) -> str:
    if name == "CacheFull":
        return "How many places does the last pass need, and how many guesses can it still use?"
    return "Which line stops it?"


def _about_token(case: dict[str, Any], step: int) -> str:
    if step == 0:
        return "Which row of the prompt's pass chooses the first token?"
    if case["kind"] in ("none at all", "all right"):
        return "Which token was fed before it, and at which position did it stand?"
    return "A guess before it was wrong. What does the cache still hold of it?"


# --- the passes ----------------------------------------------------------------------------------


def draw_work(seed: int) -> Challenge:
    """Draw a model, a prompt and texts to write, a length for each kind of guesses."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=1, max_seq_len=40)
    prompt = draw_tokens(rng, 1, int(rng.integers(4, 8)), model["config"]["vocab_size"])[0]
    K = int(rng.integers(3, 5))
    cases = [
        {"kind": kind, "prompt": prompt, "n_new": n_new, "K": K}
        for kind, n_new in (
            ("all right", 1 + 3 * (K + 1)),
            ("all right", 1 + 2 * (K + 1) + 2),
            ("wrong at once", 6),
            ("wrong at the second", 9),
            ("none at all", 4),
        )
    ]
    return {**model, "cases": cases}


def probe_work(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Write each text in a roomy cache, in float64, where no two logits tie by rounding."""
    writer, runs = Writer(student, challenge, torch.float64), []
    for case in challenge["cases"]:
        cache = new_cache(challenge, 1, 40, torch.float64)
        with count_passes(writer.model) as passes:
            came = writer.write(case, cache)
        runs.append({"came": came, "passes": passes})
    return {"runs": runs}


def passes_of(case: dict[str, Any]) -> list[int]:
    """List the tokens of each pass: the prompt's, and then the newest token with what was drafted."""
    passes, left = [len(case["prompt"])], case["n_new"] - 1
    while left > 0:
        drafted = 0 if case["kind"] == "none at all" else min(case["K"], left - 1)
        place = GUESSES[case["kind"]]
        kept = drafted if place is None else min(place, drafted)
        passes.append(1 + drafted)
        left -= 1 + kept
    return passes


@check(
    "speculate",
    draw=draw_work,
    probe=probe_work,
    evidence=lambda challenge: {
        "runs": [{"came": str, "passes": Each(int)}] * len(challenge["cases"])
    },
)
def passes_are_saved(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare tokens of each pass with those that are needed."""
    for case, run in zip(challenge["cases"], evidence["runs"], strict=True):
        told, wanted, passes = _told(case), passes_of(case), run["passes"]
        if run["came"] != "returned":
            return failed(f"{told}, a cache of 40 places: {run['came']}. Which line stops it?")
        if passes == wanted:
            continue
        question = "Which tokens does a pass feed, and which did one before it?"
        if passes[:1] != wanted[:1]:
            question = "What goes in with the prompt, and in how many passes?"
        elif len(passes) > len(wanted):
            question = (
                "How many tokens does a pass write whose guesses are all right, and of which text does "
                "propose see the end?"
            )
        elif len(passes) == len(wanted):
            question = "How many guesses can the last pass use?"
        return failed(f"{told}: passes of {passes} tokens, needed are {wanted}. {question}")
    return passed("The prompt in one pass, then the newest token and its draft: no pass too many.")


# --- the cache -----------------------------------------------------------------------------------


def draw_caches(seed: int) -> Challenge:
    """Draw a model, an earlier part of a text, a prompt and kinds of guesses."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=2, max_seq_len=48)
    V = model["config"]["vocab_size"]
    earlier, prompt = (
        draw_tokens(rng, 1, 5, V)[0],
        draw_tokens(rng, 1, int(rng.integers(2, 6)), V)[0],
    )
    K, n_new = int(rng.integers(3, 5)), int(rng.integers(9, 13))
    cases = [
        {"kind": kind, "prompt": prompt, "n_new": n_new, "K": K, "held": held, "spare": spare}
        for kind, held, spare in (
            ("all right", 0, 1),
            ("all right", 0, 0),
            ("wrong at once", 0, 1),
            ("wrong at the second", 5, 1),
            ("wrong at the last", 5, 1),
            ("wrong at the last", 5, 0),
        )
    ]
    return {**model, "earlier": earlier, "cases": cases}


def probe_caches(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Write texts in given caches, some of which hold tokens; then feed the last token, where a place is
    left for it. And ask for what does not fit."""
    writer, cases = Writer(student, challenge), challenge["cases"]
    runs, refused = [], []
    for case in cases:
        cache, earlier = _cache_for(writer.model, challenge, case)
        text = writer.text(case, cache, earlier)
        held = len(cache)
        runs.append({"text": text, "held": held, "logits": _after(writer.model, text, cache)})
    for case in cases[2:4]:
        cache, earlier = _cache_for(writer.model, challenge, case | {"spare": -1})
        with count_passes(writer.model) as passes:
            came = writer.write(case, cache, earlier)
        refused.append({"came": came, "held": len(cache), "passes": passes})
    return {"runs": runs, "refused": refused}


def _cache_for(
    model: MiniGPT, challenge: Challenge, case: dict[str, Any]
) -> tuple[KVCache, list[int]]:
    """Make a cache for the text of a case that holds an earlier part; and return that part."""
    size = case["held"] + len(case["prompt"]) + case["n_new"] - 1 + case["spare"]
    cache, earlier = new_cache(challenge, 1, size), challenge["earlier"][: case["held"]].tolist()
    if earlier:
        forward_cached(model, torch.tensor([earlier]), cache)
    return cache, earlier


def _after(model: MiniGPT, text: np.ndarray | str, cache: KVCache) -> np.ndarray | str:
    """Feed the last token of a text; return the logits, or "nothing" where it cannot be fed."""
    if isinstance(text, str) or not text.size or len(cache) == cache.max_len:
        return "nothing"
    last = int(text.reshape(-1)[-1])
    if not 0 <= last < model.config.vocab_size:
        return "nothing"
    return as_array(forward_cached(model, torch.tensor([[last]]), cache)[0, -1])


@check(
    "speculate",
    draw=draw_caches,
    probe=probe_caches,
    evidence=lambda challenge: {
        "runs": [{"text": ARRAY_OR_WORDS, "held": int, "logits": ARRAY_OR_WORDS}]
        * len(challenge["cases"]),
        "refused": [{"came": str, "held": int, "passes": Each(int)}] * 2,
    },
    truth=uncached,
)
def cache_is_left_as_alone(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare what caches hold, and what the next token would be, with a text written alone."""
    for case, run in zip(challenge["cases"], evidence["runs"], strict=True):
        P, g, held = len(case["prompt"]), case["n_new"], case["held"]
        size = held + P + g - 1 + case["spare"]
        told = f"{_told(case)}, in a cache of {size} places that holds {held}"
        text = run["text"]
        if isinstance(text, str):
            return failed(f"{told}: {text}; the text fits. {_about_stop(text)}")
        if run["held"] != held + P + g - 1:
            return failed(
                f"{told}: it then holds {run['held']} tokens, wanted are {held + P + g - 1}: all but the "
                f"last. {_about_held(run['held'], held)}"
            )
        logits = run["logits"]
        if text.shape != (P + g,) or isinstance(logits, str) == bool(case["spare"]):
            return failed(f"{told}: got a text of shape {text.shape}. When is it done?")
        if isinstance(logits, str):
            if logits != "nothing":
                return failed("A part of what was asked for did not come back.")
            continue
        whole = np.concatenate([challenge["earlier"][:held], text])[None]
        wanted = truth(challenge, whole)[0, -1]
        delta = float(np.abs(logits - wanted).max()) if logits.shape == wanted.shape else np.inf
        if not delta <= tolerance:
            return failed(
                f"{told}: when the last token is fed, its logits differ from those of the same text "
                f"without a cache (max |Δ| {delta:.2g}, tolerance {tolerance:g}). Whose rows does the "
                f"cache hold, and at which positions do they stand?"
            )
    for case, run in zip(challenge["cases"][2:4], evidence["refused"], strict=True):
        if run["came"] != "CacheFull":
            return failed(
                f"{_told(case)}, one place too few: it {run['came']}; wanted is CacheFull. How many "
                f"tokens are fed and kept in all?"
            )
        if run["passes"] or run["held"] != case["held"]:
            return failed(
                f"{_told(case)}, one place too few: CacheFull came after passes of {run['passes']} "
                f"tokens. Can you know before the first?"
            )
    return passed("The cache holds just what it holds when the text is written alone.")


def _about_held(held: int, before: int) -> str:
    if held == before:
        return "Is the cache that was given the one that is used (an empty one is a cache, too)?"
    return "How many guesses of the last pass stay, and what else did it feed?"
