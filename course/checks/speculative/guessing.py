"""Check guesses: which of them are kept, what is looked up, and how many tokens to expect."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, in_words, plain
from course.checks.recorder import given

# --- verify_greedy -------------------------------------------------------------------------------


def draw_guesses(seed: int) -> Challenge:
    """Draw drafts with the logits that judge them: no guess, one guess, all right, and wrong at one
    place with right ones behind it; float32 and float64, among them logits that lie 1e-9 apart."""
    rng = np.random.default_rng(seed)
    cases = []
    for K, wrong in ((0, ()), (1, ()), (1, (0,)), (2, (0,)), (3, (1,)), (4, (3,)), (4, ()), (5, (0, 2)),
                     (6, (2, 3)), (9, (7,)), (3, (0, 1, 2))):  # fmt: skip
        cases.append(_guesses(rng, K, wrong))
    repeated = _guesses(rng, 4, (1,))  # one token again and again: places cannot be mixed up unseen
    repeated["logits"][:] = repeated["logits"][0]
    repeated["draft"][:] = repeated["logits"][0].argmax()
    close = _guesses(rng, 3, (1,))
    close["logits"] = close["logits"].astype(np.float64)
    for row, logits in enumerate(close["logits"]):  # who rounds takes the first of the two
        first, second = np.sort(rng.permutation(len(logits))[:2])
        logits[[first, second]] = logits.max() + np.array([1.0, 1.0 + 1e-9])
        if row < 3:
            close["draft"][row] = second
    return {"cases": [*cases, repeated, close]}


def _guesses(rng: np.random.Generator, K: int, wrong: tuple[int, ...]) -> dict[str, Any]:
    """Draw logits (K + 1, V) whose rows have different likeliest tokens, and a draft wrong at these
    places: there it is what another row would choose."""
    V = int(rng.integers(K + 5, K + 16))
    likeliest = rng.permutation(V)[: K + 1]
    logits = rng.normal(size=(K + 1, V)).astype(np.float32) - 3
    logits[np.arange(K + 1), likeliest] = logits.max(axis=1) + 1
    draft = likeliest[:K].copy()
    for place in wrong:
        draft[place] = likeliest[place + 1] if rng.random() < 0.5 else rng.integers(V)
        if draft[place] == likeliest[place]:
            draft[place] = (draft[place] + 1) % V
    return {"draft": draft.astype(np.int64), "logits": logits}


def probe_guesses(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Verify each draft."""
    return {
        "pairs": [
            pair_of(student.verify_greedy(given(case["draft"]), given(case["logits"])))
            for case in challenge["cases"]
        ]
    }


def pair_of(answer: Any) -> list[int | float | str]:
    """The two numbers of an answer, in words what is none."""
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        return [in_words(answer), "nothing (None)"]
    return [
        plain(part.item() if isinstance(part, Tensor) and part.numel() == 1 else part)
        for part in answer
    ]


PAIR = [NUMBER_OR_WORDS, NUMBER_OR_WORDS]


@check(
    "verify_greedy",
    draw=draw_guesses,
    probe=probe_guesses,
    evidence=lambda challenge: {"pairs": [PAIR] * len(challenge["cases"])},
)
def only_right_guesses_are_kept(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Any, Any], list[int]]
) -> Verdict:
    """Compare how many are kept, and the token behind them."""
    for case, pair in zip(challenge["cases"], evidence["pairs"], strict=True):
        draft, logits = case["draft"], case["logits"]
        kept, token = truth(draft, logits)
        told = (
            f"Draft {draft.tolist()}, likeliest token by row {logits.argmax(axis=1).tolist()}: "
            f"verify_greedy gave ({pair[0]}, {pair[1]})"
        )
        if any(isinstance(part, str) for part in pair):
            return failed(f"{told}; wanted are two ints. What do you return?")
        if pair[0] != kept:
            return failed(f"{told}; {kept} of these guesses are kept. {_about_kept(pair[0], kept)}")
        if pair[1] != token:
            question = (
                "All guesses were right. Which row says what comes after the last of them?"
                if kept == len(draft)
                else "Which row judges the first wrong guess, and what would that row choose?"
            )
            return failed(f"{told}; {kept} are kept, and another token follows them. {question}")
    return passed("Guesses are kept up to the first wrong one, and a token of the model follows.")


def _about_kept(got: float, kept: int) -> str:
    if got > kept:
        return "What text does a guess behind a wrong one continue?"
    return "Which row judges draft[0], and at which guess do you stop?"


# --- lookup_draft --------------------------------------------------------------------------------

DEFAULT = 3
"""The longest ending that the signature of lookup_draft names."""


def draw_texts(seed: int) -> Challenge:
    """Draw texts with what is asked for: one token, nothing repeated, endings that stood once or more
    often before, overlap the end, or have less behind them than is wanted."""
    rng = np.random.default_rng(seed)
    a, b, c, d, e = (int(x) for x in rng.permutation(np.arange(3, 40))[:5])
    cases = [
        ([a], 3, None),
        ([a, b, c], 3, None),
        ([a, b, a], 1, None),
        ([a, a], 2, None),
        ([a, b, a], 4, None),
        ([a, b, a], 0, None),
        ([a, b, c, d, a], 2, None),
        ([a, b, a, c, a], 2, None),  # the latest place
        ([a, a, a], 4, None),  # overlaps the end
        (
            [a, b, c, d, e, b, c, a, b, c],
            3,
            None,
        ),  # three tokens before two, though two stood later
        ([a, b, c, d, a, b, e, a, b, c], 3, 1),
        ([c, d, e, a, b, d, e, a, c, d, e], 2, 2),
        ([a, b, c, d, e, b, c, d, a, b, c, d], 2, 4),
        ([a, b, c, d, e, b, c, d, a, b, c, d], 2, None),
        ([e, b, c, a, d, b, c], 9, 9),  # longer than the text
        ([a, b, b, c, a, b, b], 3, None),
        (
            [a, b, a, c, d, a, b, a, b, a],
            2,
            None,
        ),  # the latest place of three tokens overlaps the end
    ]
    for _ in range(6):
        text = rng.integers(0, 4, int(rng.integers(5, 30))).tolist()
        longest = [None, 1, 2, 5][int(rng.integers(4))]
        cases.append((text, int(rng.integers(1, 6)), longest))
    return {"cases": [{"text": np.array(t, np.int64), "k": k, "longest": n} for t, k, n in cases]}


def probe_lookup(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Look up a draft in each text; then see whether what came is the text's own memory."""
    drafts, shared = [], False
    for case in challenge["cases"]:
        text = given(case["text"])
        longest = () if case["longest"] is None else (case["longest"],)
        draft = student.lookup_draft(text, case["k"], *longest)
        if not isinstance(draft, Tensor):
            drafts.append(in_words(draft))
            continue
        if draft.numel():
            shared |= draft.untyped_storage().data_ptr() == text.untyped_storage().data_ptr()
        drafts.append(
            draft.detach().clone().numpy()
            if draft.dim() == 1 and str(draft.dtype) == "torch.int64"
            else f"{draft.dtype} of shape {tuple(draft.shape)}"
        )
    return {"drafts": drafts, "shared": bool(shared)}


@check(
    "lookup_draft",
    draw=draw_texts,
    probe=probe_lookup,
    evidence=lambda challenge: {
        "drafts": [(np.ndarray, str)] * len(challenge["cases"]),
        "shared": bool,
    },
)
def lookup_copies_what_followed(
    challenge: Challenge, evidence: Evidence, truth: Callable[..., list[int]]
) -> Verdict:
    """Compare with what followed at the latest place of the longest ending."""
    for case, draft in zip(challenge["cases"], evidence["drafts"], strict=True):
        text, k, longest = case["text"], case["k"], case["longest"]
        want = truth(text, k, DEFAULT if longest is None else longest)
        told = f"Text {text.tolist()}, n_draft {k}" + (f", longest {longest}" if longest else "")
        if isinstance(draft, str):
            return failed(
                f"{told}: got {draft}; wanted is (<= n_draft,) int64. What do you return?"
            )
        if draft.tolist() != want:
            return failed(
                f"{told}: lookup_draft gave {draft.tolist()}, wanted is {want}. "
                f"{_about_lookup(text.tolist(), draft.tolist(), want, k)}"
            )
    if evidence["shared"]:
        return failed(
            "What lookup_draft returns lies in the memory of the text: whoever writes into one changes "
            "the other. Is it a tensor of its own?"
        )
    return passed("What followed the longest ending at its latest earlier place.")


def _about_lookup(text: list[int], draft: list[int], want: list[int], k: int) -> str:
    if len(draft) > k:
        return "How many tokens are wanted at most?"
    if not want:
        return "Where did the last token stand before?" if k else "How many tokens are wanted?"
    if not draft:
        return "Which endings of the text did you look for, and up to which place?"
    if draft == want[: len(draft)]:
        return "What else followed there?"
    if want == draft[: len(want)]:
        return "Where does the text end?"
    return "Which ending is looked for first, and which of its earlier places counts?"


# --- expected_tokens -----------------------------------------------------------------------------


def draw_shares(seed: int) -> Challenge:
    """Draw shares of right guesses and lengths of drafts, none right and all right among them."""
    rng = np.random.default_rng(seed)
    cases = [(0.5, 0), (0.5, 1), (0.0, 3), (1.0, 3), (1.0, 0), (0.0, 0)]
    cases += [(float(rng.uniform(0.2, 0.95)), int(K)) for K in rng.integers(2, 12, 6)]
    return {"cases": [{"a": a, "K": K} for a, K in cases]}


def probe_expected(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask for each mean."""
    return {
        "values": [
            plain(student.expected_tokens(case["a"], case["K"])) for case in challenge["cases"]
        ]
    }


@check(
    "expected_tokens",
    draw=draw_shares,
    probe=probe_expected,
    evidence=lambda challenge: {"values": [NUMBER_OR_WORDS] * len(challenge["cases"])},
)
def expected_tokens_add_up(
    challenge: Challenge, evidence: Evidence, truth: Callable[[float, int], float]
) -> Verdict:
    """Compare with the mean over all that can happen."""
    for case, got in zip(challenge["cases"], evidence["values"], strict=True):
        a, K = case["a"], case["K"]
        told = f"expected_tokens({a:.4g}, {K}) gave {got if isinstance(got, str) else f'{got:.6g}'}"
        if isinstance(got, str):
            return failed(f"{told}; wanted is one number. What do you return?")
        right = truth(a, K)
        if not abs(got - right) <= 1e-6 * right:
            if K == 0:
                question = "What does a pass write that has no guess in it?"
            elif a in (0.0, 1.0):
                question = "What does each pass write when " + (
                    "every guess is right?" if a else "no guess is right?"
                )
            else:
                question = "When is the second guess kept, and what comes besides the guesses?"
            return failed(f"{told}; case by case it is {right:.6g}. {question}")
    return passed("1 + a + a² + … + a^K.")
