"""Check writing with guesses: the text, the passes it takes, and the cache that it leaves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, first_wrong_choice, outcome, uncached
from course.checks.counts import plain
from course.checks.default_device import beside_default
from course.checks.drawing import (
    build_model,
    draw_model,
    draw_tokens,
    likeliest_next,
    with_end_next,
)
from course.checks.passes import count_passes, new_cache
from course.checks.recorder import given
from course.checks.recording import TENSOR, as_array
from course.checks.rules import OWN_CACHE, wrong_device
from course.minigpt.kv_cache import KVCache, forward_cached
from course.model import MiniGPT

GUESSES = {
    "all right": None,
    "wrong at once": 0,
    "wrong at the second": 1,
    "wrong at the last": -1,
    "none at all": None,
    "none now and then": None,
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
        for _ in range(0 if has_none(kind, start) else k):
            known += (self.likeliest(known),)
        draft = torch.tensor(known[start:], dtype=torch.int64)
        place = GUESSES[kind]
        if place is not None and len(draft) > max(place, 0):
            draft[place] = (draft[place] + 1) % config.vocab_size
        return draft


def has_none(kind: str, n_known: int) -> bool:
    """Whether a draft of this kind is empty behind so many tokens."""
    return kind == "none at all" or (kind == "none now and then" and n_known % 3 == 0)


Case = dict[str, Any]
FORMS = {
    "text": TENSOR,
    "outcome": str,
    "words": str,
    "passes": Each(int),
    "useless": str,
    "held": int,
    "next": TENSOR,
    "own_memory": bool,
}
"""What may be recorded of a text: the text, or in words what is none; "returned" or the name of the
exception; that one's message; the tokens of each pass; which guesses were asked for
that no pass could use; how many the cache then holds; the logits that
follow when the last token is fed; and whether the text has memory of its own."""


def case_of(kind: str, prompt: np.ndarray, n_new: int, K: int, *records: str, **other: Any) -> Case:
    """Make a case: one text that is written.

    Args:
        kind: a name of GUESSES.
        records: names of FORMS; "words" belongs to each case.
        other: the model's `dtype`; the `places` of the cache that is given, and the `earlier` tokens that
            it holds.
    """
    case = {"kind": kind, "prompt": prompt, "n_new": n_new, "K": K, "records": ["words", *records]}
    return {**case, "dtype": "float32", "places": None, "earlier": prompt[:0], **other}


def probe_texts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Write each text, those of one dtype by one model; one guesser serves all."""
    cases = challenge["cases"]
    model_in = cache(lambda dtype: build_model(challenge).to(getattr(torch, dtype)))
    guesser = Guesser(build_model(challenge).to(getattr(torch, cases[0]["dtype"])))
    return {
        "runs": [
            _write(student, challenge, case, model_in(case["dtype"]), guesser) for case in cases
        ]
    }


def _write(
    student: SimpleNamespace, challenge: Challenge, case: Case, model: MiniGPT, guesser: Guesser
) -> Evidence:
    """Write one text, and record what the case names."""
    prompt, earlier, kv = given(case["prompt"]), case["earlier"], None
    if case["places"] is not None:
        kv = new_cache(challenge, 1, case["places"], getattr(torch, case["dtype"]))
    if len(earlier):
        forward_cached(model, torch.tensor(earlier[None]), kv)
    size, useless = len(prompt) + case["n_new"], []

    def propose(text: Tensor, k: int) -> Tensor:
        if text.numel() >= size or isinstance(plain(k), str) or k < 0:
            useless.append(f"{plain(k)} guesses behind {text.numel()} of {size} tokens")
        return guesser.propose(case["kind"], earlier.tolist(), text, k)

    request = model, propose, prompt, case["n_new"], case["K"], kv
    texts: list[Any] = []
    words: list[str] = []

    def speculate() -> None:
        try:
            texts.append(student.speculate(*request))
        except Exception as error:
            words.append(f"{error}"[:200])
            raise

    counting = count_passes(model) if "passes" in case["records"] else nullcontext([])
    with counting as passes:
        ended = outcome(speculate)
    text, held = as_array(texts[0]) if texts else ended, 0 if kv is None else len(kv)
    run = {"text": text, "outcome": ended, "passes": list(passes), "held": held}
    run["words"], run["useless"] = "".join(words), "".join(useless[:1])
    run["own_memory"] = not any(_shares_memory(result, prompt) for result in texts)
    if "next" in case["records"]:
        run["next"] = _after(model, text, kv)
    return {name: run[name] for name in case["records"]}


def _shares_memory(a: Any, b: Tensor) -> bool:
    """Tell whether a tensor lies in the memory of another; one without numbers lies nowhere."""
    if not isinstance(a, Tensor) or not a.numel():
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _after(model: MiniGPT, text: np.ndarray | str, kv: KVCache) -> np.ndarray | str:
    """Feed the last token of a text; return the logits, or "nothing" where it cannot be fed."""
    last = -1 if isinstance(text, str) or not text.size else int(text.reshape(-1)[-1])
    if len(kv) == kv.max_len or not 0 <= last < model.config.vocab_size:
        return "nothing"
    return as_array(forward_cached(model, torch.tensor([[last]]), kv)[0, -1])


def texts_form(challenge: Challenge) -> Evidence:
    cases = challenge["cases"]
    return {"runs": [{name: FORMS[name] for name in case["records"]} for case in cases]}


check_texts = partial(check, "speculate", probe=probe_texts, evidence=texts_form)


def describe(case: Case) -> str:
    """Write a case in words."""
    model = "" if case["dtype"] == "float32" else f"A model of {case['dtype']}. "
    cache = f", in a cache of {case['places']} places that holds {len(case['earlier'])}"
    return (
        f"{model}A prompt of {len(case['prompt'])} tokens, n_new {case['n_new']}, n_draft {case['K']}, "
        f"guesses {case['kind']}{'' if case['places'] is None else cache}"
    )


# --- the text ------------------------------------------------------------------------------------


def draw_cases(seed: int) -> Challenge:
    """Draw a model, a prompt that it continues by `<end>`, and how it is to be continued: with drafts of
    each kind and length, in float64, as the longest text that the model can read, and by nothing."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=2, max_seq_len=40)
    length, n_new, K = (int(rng.integers(*pair)) for pair in ((3, 7), (8, 13), (3, 5)))
    prompts = draw_tokens(rng, 1, length, model["config"]["vocab_size"])
    prompt, long = prompts[0], draw_tokens(rng, 1, 34, model["config"]["vocab_size"])[0]
    right, once, second = "all right", "wrong at once", "wrong at the second"
    cases = [
        *((kind, prompt, n_new, K) for kind in GUESSES),
        (right, prompt[:1], n_new, K),
        (right, prompt, n_new, 0),
        (once, prompt, n_new, 1),
        (right, prompt, 1, K),
        (right, prompt, 2, K),
        (right, prompt, n_new, 50),
        (second, prompt, n_new, 50),
        (second, long, 6, K),
    ]
    double = case_of(second, prompt, n_new, K, "text", dtype="float64")
    nothing = case_of(right, prompt, 0, K, "text", "passes", "own_memory")
    cases = [*(case_of(*case, "text") for case in cases), double, nothing]
    cases[0]["records"].append("passes")
    likeliest, _ = likeliest_next(model, prompts)
    return {**with_end_next(model, likeliest), "cases": cases}


@check_texts(draw=draw_cases, truth=uncached)
def every_draft_gives_the_same_text(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Look for the first token that the model would not have written alone."""
    logits = cache(lambda text: truth(challenge, np.array([text])))  # most drafts give one text
    for case, run in zip(challenge["cases"], evidence["runs"], strict=True):
        wrong = _wrong_text(challenge, case, run, logits, tolerance) if case["n_new"] else None
        if wrong:
            return failed(f"{describe(case)}: {wrong}")
    if wrong := _nothing_saved(challenge["cases"][0], evidence["runs"][0]["passes"]):
        return failed(wrong)
    nothing, prompt = evidence["runs"][-1], challenge["cases"][-1]["prompt"]
    for wrong, text in (
        (
            isinstance(nothing["text"], str) or nothing["text"].tolist() != prompt.tolist(),
            "it should give the prompt and nothing else. What does your code do before its loop?",
        ),
        (nothing["passes"], "something was fed. For whose logits?"),
        (
            not nothing["own_memory"],
            "result and prompt share their memory. Whose tensor is returned?",
        ),
    ):
        if wrong:
            return failed(f"n_new = 0: {text}")
    return passed("Whatever was guessed, the text is the model's own.")


def _wrong_text(
    challenge: Challenge,
    case: Case,
    run: Evidence,
    logits: Callable[[tuple[int, ...]], np.ndarray],
    tolerance: float,
) -> str | None:
    text, P, V = run["text"], len(case["prompt"]), challenge["config"]["vocab_size"]
    size = P + case["n_new"]
    if isinstance(text, str):
        at_once = run.get("passes") == []
        return (
            f"{text}{_error(run)}; wanted is a text of {size} tokens. {_about_stop(text, at_once)}"
        )
    if text.shape != (size,) or text.dtype != np.int64:
        return (
            f"got {text.dtype} of shape {text.shape}, wanted is int64 of shape {(size,)}. "
            f"{_about_size(text.size, size, case['n_new'])}"
        )
    if text[:P].tolist() != case["prompt"].tolist() or text.min() < 0 or text.max() >= V:
        return f"the text does not begin with the prompt, or has ids outside 0 … {V - 1}."
    wrong = first_wrong_choice(logits(tuple(text.tolist())), text[None], P, tolerance)
    if not wrong:
        return None
    question = "what does the cache still hold of the wrong guess before it?"
    if case["kind"] in ("none at all", "all right", "one fewer than asked for"):
        question = "which token was fed before it, and at which position did it stand?"
    question = f"Does only_right_guesses_are_kept pass? If so, {question}"
    if wrong.step == 0:
        question = "Which row of the prompt's pass chooses the first token?"
    return (
        f"new token {wrong.step + 1} is {text[P + wrong.step]}; alone the model writes "
        f"{wrong.likeliest}, whose logit leads by {wrong.lead:.2g}. {question}"
    )


def _about_size(got: int, size: int, n_new: int) -> str:
    if got > size:
        return "How many tokens does the last pass write?"
    if got == size:
        return "Which axes has a text, and which type?"
    return "Is the prompt a part of the text?" if got == n_new else "When is it done?"


def _nothing_saved(case: Case, passes: list[int]) -> str | None:
    """Say that guesses which are all right save no pass at all: then the text, and the cache, are those
    of a loop without guesses. How many they should save is the matter of another check."""
    n_new, n_fed = case["n_new"], len(case["prompt"]) + case["n_new"] - 1
    if len(passes) < n_new and sum(passes) >= n_fed:
        return None
    return (
        f"{describe(case)}: {len(passes)} passes were made, of {passes} tokens, for {n_new} new tokens. "
        f"Which text does propose see? Do its guesses go through the model with the newest token, and "
        f"which are kept?"
    )


def _error(run: Evidence) -> str:
    """The message of the exception that stopped a text, in brackets."""
    return f" ({run['words']})" if run["words"] else ""


def _about_stop(name: str, at_once: bool = False) -> str:
    if name == "CacheFull" and at_once:
        return "How many tokens are fed and kept in all, if the last one never is?"
    if name == "CacheFull":
        return (
            "How many places has the cache, how many do wrong guesses still take, and how many can the "
            "last pass use?"
        )
    return "Which line stops it?"


# --- the passes ----------------------------------------------------------------------------------


def draw_work(seed: int) -> Challenge:
    """Draw a model, a prompt and texts to write in a roomy cache, a length for each kind of guesses; in
    float64, where no two logits tie by rounding."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=1, max_seq_len=40)
    prompt = draw_tokens(rng, 1, int(rng.integers(4, 8)), model["config"]["vocab_size"])[0]
    K = int(rng.integers(3, 5))
    cases = [
        case_of(kind, prompt, n_new, K, "outcome", "passes", "useless", dtype="float64", places=40)
        for kind, n_new in (
            ("all right", 1 + 3 * (K + 1)),
            ("all right", 1 + 2 * (K + 1) + 2),
            ("wrong at once", 6),
            ("wrong at the second", 9),
            ("none at all", 4),
            ("none now and then", 14),
        )
    ]
    return {**model, "cases": cases}


def passes_of(case: Case) -> list[int]:
    """List the tokens of each pass: the prompt's, and then the newest token with what was drafted."""
    passes, left = [len(case["prompt"])], case["n_new"] - 1
    while left > 0:
        n_known = len(case["prompt"]) + case["n_new"] - left
        drafted = 0 if has_none(case["kind"], n_known) else min(case["K"], left - 1)
        place = GUESSES[case["kind"]]
        kept = drafted if place is None else min(place, drafted)
        passes.append(1 + drafted)
        left -= 1 + kept
    return passes


@check_texts(draw=draw_work)
def passes_are_saved(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare tokens of each pass with those that are needed."""
    for case, run in zip(challenge["cases"], evidence["runs"], strict=True):
        expected, passes = passes_of(case), run["passes"]
        if run["outcome"] != "returned":
            return failed(f"{describe(case)}: {run['outcome']}{_error(run)}. Which line stops it?")
        if passes == expected:
            if run["useless"]:
                return failed(
                    f"{describe(case)}: the passes are right, but propose was asked for "
                    f"{run['useless']}. How many can be used there, and is there another pass?"
                )
            continue
        first = "Does every_draft_gives_the_same_text pass? If so,"
        question = f"{first} which tokens does a pass feed, and which did one before it?"
        if passes[:1] != expected[:1]:
            question = "What goes in with the prompt, and in how many passes?"
        elif len(passes) > len(expected):
            question = (
                f"{first} when do you ask, which text does propose see, and how many tokens does a pass "
                f"write?"
            )
        elif len(passes) == len(expected) and passes[:-1] == expected[:-1]:
            question = "How many guesses can the last pass use?"
        return failed(
            f"{describe(case)}: passes of {passes} tokens, needed are {expected}. {question}"
        )
    return passed("The prompt in one pass, then the newest token and its draft: no pass too many.")


# --- the cache -----------------------------------------------------------------------------------


def draw_caches(seed: int) -> Challenge:
    """Draw a model, and texts to write in caches, some of which hold an earlier part; with a place to
    spare, none, and one too few."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=2, max_seq_len=48)
    V = model["config"]["vocab_size"]
    earlier, prompt = (draw_tokens(rng, 1, n, V)[0] for n in (5, int(rng.integers(2, 6))))
    K, n_new = int(rng.integers(3, 5)), int(rng.integers(9, 13))
    cases = []
    for kind, held, spare in (
        ("all right", 0, 1),
        ("all right", 0, 0),
        ("wrong at once", 0, 1),
        ("wrong at the second", 5, 1),
        ("wrong at the last", 5, 1),
        ("wrong at the last", 5, 0),
        ("wrong at once", 0, -1),
        ("wrong at the second", 5, -1),
    ):
        records = ("text", "held", "next") if spare >= 0 else ("outcome", "held", "passes")
        places = held + len(prompt) + n_new - 1 + spare
        cases.append(
            case_of(kind, prompt, n_new, K, *records, places=places, earlier=earlier[:held])
        )
    cases[0]["records"].append("passes")
    return {**model, "cases": cases}


def probe_caches(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Write each text; and one where new tensors lie elsewhere, in a cache of its own, with a guess."""
    model, prompt = build_model(challenge), given(challenge["cases"][0]["prompt"])

    def speculate() -> Any:
        return student.speculate(model, lambda text, n: text[:n].clone(), prompt, 3, 1)

    return {**probe_texts(student, challenge), "elsewhere": beside_default(speculate)}


@check_texts(
    draw=draw_caches,
    probe=probe_caches,
    evidence=lambda challenge: {**texts_form(challenge), "elsewhere": str},
    truth=uncached,
)
def cache_is_left_as_alone(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare what caches hold, and what the next token would be, with a text written alone."""
    for case, run in zip(challenge["cases"], evidence["runs"], strict=True):
        if "text" in case["records"]:
            wrong = _wrong_cache(challenge, case, run, truth, tolerance)
        elif run["outcome"] != "CacheFull":
            wrong = (
                f"one place too few, and it {run['outcome']}; wanted is CacheFull. How many tokens "
                f"are fed and kept in all?"
            )
        elif run["passes"] or run["held"] != len(case["earlier"]):
            wrong = (
                f"one place too few, and CacheFull came after passes of {run['passes']} tokens. Can you "
                f"know before the first?"
            )
        else:
            wrong = None
        if wrong:
            return failed(f"{describe(case)}: {wrong}")
    if wrong := _nothing_saved(challenge["cases"][0], evidence["runs"][0]["passes"]):
        return failed(wrong)
    if wrong := wrong_device("speculate", evidence["elsewhere"]):
        return failed(f"{wrong} {OWN_CACHE}")
    return passed("The cache holds just what it holds when the text is written alone.")


def _wrong_cache(
    challenge: Challenge, case: Case, run: Evidence, truth: Truth, tolerance: float
) -> str | None:
    text, logits, before = run["text"], run["next"], len(case["earlier"])
    if isinstance(text, str):
        return f"{text}{_error(run)}; the text fits. {_about_stop(text, run['held'] == before)}"
    size = len(case["prompt"]) + case["n_new"]
    n_held = before + size - 1
    if text.shape != (size,):
        return f"got a text of shape {text.shape}, wanted is {(size,)}. When is it done?"
    if run["held"] != n_held:
        question = "How many guesses of the last pass stay, and what else did it feed?"
        if before and run["held"] == n_held - before:
            question = "How many tokens did the cache hold before your text?"
        elif run["held"] == before:
            question = (
                "Is the cache that was given the one that is used (an empty one is a cache, too)?"
            )
        return (
            f"it then holds {run['held']} tokens, wanted are {n_held}: {before} from before, and all of "
            f"the text but its last. {question}"
        )
    if isinstance(logits, str) or case["places"] == n_held:
        is_full = isinstance(logits, str) and logits == "nothing" and case["places"] == n_held
        return None if is_full else "a part of what was asked for did not come back."
    whole = np.concatenate([case["earlier"], text])[None]
    expected = truth(challenge, whole)[0, -1]
    delta = float(np.abs(logits - expected).max()) if logits.shape == expected.shape else np.inf
    if delta <= tolerance:
        return None
    return (
        f"when the last token is fed, its logits differ from those of the same text without a cache "
        f"(max |Δ| {delta:.2g}, tolerance {tolerance:g}). Whose rows does the cache hold, and at which "
        f"positions do they stand?"
    )
