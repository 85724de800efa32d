"""Check guesses: which of them are kept, what is looked up, and how many tokens to expect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from course.checks.calls import (
    Case,
    Words,
    call,
    check_calls,
    drawn,
    one_result_each,
    probe_calls,
    run_call,
)
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, in_words, plain
from course.checks.recorder import given
from course.checks.recording import Place, wrong_kind

# --- verify_greedy -------------------------------------------------------------------------------


def draw_guesses(rng: np.random.Generator) -> Iterator[Case]:
    """Draw drafts with the logits that judge them: no guess, one guess, all right, and wrong at one
    place with right ones behind it; float32 and float64, among them logits that lie 1e-9 apart."""
    for K, *wrong in ((0,), (1,), (1, 0), (2, 0), (3, 1), (4, 3), (4,), (5, 0, 2), (6, 2, 3), (9, 7),
                      (3, 0, 1, 2)):  # fmt: skip
        yield call("verify_greedy", *_guesses(rng, K, wrong))
    draft, logits = _guesses(rng, 4, (1,))
    logits[:], draft[:] = logits[0], logits[0].argmax()  # one token again and again
    yield call("verify_greedy", draft, logits)
    draft, logits = _guesses(rng, 3, (1,))
    logits = logits.astype(np.float64)
    for place, row in enumerate(logits):  # who rounds takes the first of the two
        first, second = np.sort(rng.permutation(len(row))[:2])
        row[[first, second]] = row.max() + np.array([1.0, 1.0 + 1e-9])
        draft[place : place + 1] = second
        if place == 1:
            nearly = draft.copy()
            nearly[1] = first
    yield call("verify_greedy", draft, logits)
    nearly[2:] = draft[2:]
    yield call("verify_greedy", nearly, logits)


def _guesses(
    rng: np.random.Generator, K: int, wrong: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a draft wrong at these places, where it is what another row would choose, and logits
    (K + 1, V) whose rows have different likeliest tokens."""
    V = int(rng.integers(K + 5, K + 16))
    likeliest = rng.permutation(V)[: K + 1]
    logits = rng.normal(size=(K + 1, V)).astype(np.float32) - 3
    logits[np.arange(K + 1), likeliest] = logits.max(axis=1) + 1
    draft = likeliest[:K].copy()
    for place in wrong:
        draft[place] = likeliest[place + 1] if rng.random() < 0.5 else rng.integers(V)
        draft[place] = (draft[place] + (draft[place] == likeliest[place])) % V
    return draft.astype(np.int64), logits


def pair_of(answer: Any) -> list[int | float | str]:
    """The two numbers of an answer, in words what is none."""
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        return [in_words(answer), "nothing (None)"]
    return [plain(part) if type(part) is int else in_words(part) for part in answer]


PAIR = [NUMBER_OR_WORDS, NUMBER_OR_WORDS]


def describe_draft(case: Case) -> str:
    draft, logits = case["arguments"]
    likeliest = logits.argmax(axis=1).tolist()
    return f"Draft {draft.tolist()}, likeliest token by row {likeliest}: verify_greedy"


@check_calls(
    "verify_greedy",
    draw=draw_guesses,
    run=lambda verify, case: pair_of(run_call(verify, case)),
    describe=describe_draft,
    praise="Guesses are kept up to the first wrong one, and a token of the model follows.",
)
def only_right_guesses_are_kept(
    case: Case, result: list[Any], expected: list[int], place: Place
) -> Words:
    gave, kept = f"gave ({result[0]}, {result[1]});", expected[0]
    if any(isinstance(part, str) for part in result):
        gave = gave.replace('"', "")  # of words
        return f"{gave} wanted are two ints.", ((True, "What do you return?"),)
    if place == (0,):
        return f"{gave} {kept} of these guesses are kept.", (
            (
                result[0] > kept and len(case["arguments"][0]) > kept + 1,
                "What text does a guess behind a wrong one continue?",
            ),
            (result[0] > kept, "Is the wrong guess itself counted?"),
            (
                0 < kept == len(case["arguments"][0]),
                "Every guess is right here. What does your search for the first wrong one give then?",
            ),
            (True, "Which row judges draft[0], and at which guess do you stop?"),
        )
    bonus = "All guesses were right. Which row says what comes after the last of them?"
    return f"{gave} {kept} are kept, and another token follows them.", (
        (kept == len(case["arguments"][0]), bonus),
        (True, "Which row judges the first wrong guess, and what would that row choose?"),
    )


# --- lookup_draft --------------------------------------------------------------------------------


@drawn
def draw_texts(rng: np.random.Generator) -> Iterator[Case]:
    """Draw texts with what is asked for: one token, nothing repeated, endings that stood once or more
    often before, overlap the end, or have less behind them than is wanted."""
    letters = rng.permutation(np.arange(3, 40))[:5]
    for text, *sizes in (
        ("a", 3),
        ("abc", 3),
        ("aba", 1),
        ("aa", 2),
        ("aba", 4),
        ("aba", 0),
        ("abcda", 2),
        ("abaca", 2),  # the latest place
        ("abcdaea", 3),  # the latest place, though less stands behind it
        ("aaa", 4),  # overlaps the end
        ("abcdebcabc", 3),  # three tokens before two, though two stood later
        ("abcdabeabc", 3, 1),
        ("cdeabdeacde", 2, 2),
        ("abcdebcdabcd", 2, 4),
        ("abcdebcdabcd", 2),
        ("ebcadbc", 9, 9),  # longer than the text
        ("abbcabb", 3),
        ("abacdababa", 2),  # the latest place of three tokens overlaps the end
    ):
        yield call("lookup_draft", letters[["abcde".index(letter) for letter in text]], *sizes)
    for tokens in ([15, 9, 5], [12, 1]):  # the digits of 5 and of 1 stand in other numbers alone
        yield call("lookup_draft", np.array(tokens), 2)
    for _ in range(6):
        text, sizes = rng.integers(0, 4, int(rng.integers(5, 30))), [int(rng.integers(1, 6))]
        yield call("lookup_draft", text, *sizes, *[[], [1], [2], [5]][int(rng.integers(4))])


def run_lookup(lookup_draft: Callable[..., Any], case: Case) -> Any:
    """Look up a draft; then write GONE over the text, which shows in a draft that lies in its memory."""
    text, *sizes = case["arguments"]
    tokens = given(text)
    draft = lookup_draft(tokens, *sizes)
    tokens.fill_(GONE)
    return draft


GONE = -1


@check(
    "lookup_draft",
    draw=draw_texts,
    probe=partial(probe_calls, run=run_lookup),
    evidence=one_result_each,
)
def lookup_copies_what_followed(
    challenge: Challenge, evidence: Evidence, truth: Callable[..., list[int]]
) -> Verdict:
    """Compare with what followed at the latest place of the longest ending."""
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        (text, k, *longest), draft = case["arguments"], result["value"]
        where = f"Text {text.tolist()}, n_draft {k}" + "".join(f", longest {n}" for n in longest)
        if not isinstance(draft, np.ndarray) or (result["type"], draft.ndim) != ("int64", 1):
            kind = wrong_kind(result, text, shape_question="What do you return?")
            return failed(f"{where}: lookup_draft {kind} Wanted is (<= n_draft,) int64.")
        if (draft == GONE).any():
            return failed(
                f"{where}: what lookup_draft returns lies in the memory of the text: whoever writes "
                f"into one changes the other. Is it a tensor of its own?"
            )
        expected = truth(*case["arguments"])
        if draft.tolist() != expected:
            return failed(
                f"{where}: lookup_draft gave {draft.tolist()}, wanted is {expected}. "
                f"{_about_lookup(text.tolist(), draft.tolist(), expected, k)}"
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
    return "Which ending is found, at which place, and with which token do the guesses begin?"


# --- expected_tokens -----------------------------------------------------------------------------


def draw_shares(rng: np.random.Generator) -> Iterator[Case]:
    """Draw shares of right guesses and lengths of drafts, none right and all right among them."""
    for share, K in ((0.5, 1), (0.5, 0), (0.0, 3), (1.0, 3), (1.0, 0), (0.0, 0)):
        yield call("expected_tokens", share, K)
    for K in rng.integers(2, 12, 6).tolist():
        yield call("expected_tokens", float(rng.uniform(0.2, 0.95)), K)
    yield call("expected_tokens", 0.995, 9)


@check_calls(
    "expected_tokens",
    draw=draw_shares,
    tolerance=1e-6,
    describe=lambda case: "expected_tokens({:.4g}, {})".format(*case["arguments"]),
    praise="1 + a + a² + … + a^K.",
)
def expected_tokens_add_up(case: Case, result: float, expected: float, place: Place) -> Words:
    share, K = case["arguments"]
    return f"gave {result:.6g}; case by case it is {expected:.6g}.", (
        (K == 0, "What does a pass write that has no guess in it?"),
        (share == 1, "What does each pass write when every guess is right?"),
        (share == 0, "What does each pass write when no guess is right?"),
        (K == 1, "How often is the one guess kept, and what comes besides it?"),
        (True, "When is the second guess kept, and what comes besides the guesses?"),
    )
