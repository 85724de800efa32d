"""Check drawing with guesses: odds of the first token, of the second and of the bonus, and how often
guesses are accepted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.speculative.guessing import PAIR, pair_of

V = 8
MODEL = (0.30, 0.13, 0.15, 0.10, 0.12, 0.12, 0.08, 0.00)
DRAFT = (0.00, 0.04, 0.05, 0.07, 0.30, 0.36, 0.14, 0.04)
"""Odds of a row, in a drawn order: 0.48 of them in common. The model never says the last token, the draft
never proposes the first; some proposed ones are kept always, others about half the time or less."""
SHIFT = 3
"""Between the odds of neighbouring rows: so far apart that whoever mixes rows up shows in any order."""
BOUND = 65.0
"""Largest chi-square of drawn tokens, at 7 degrees of freedom: right answers pass it with a probability
below 1e-8; wrong ones lie above 100."""
OFF = 0.1
"""Largest difference of a mean number of accepted tokens: more than five standard deviations."""
LEAST = 0.5
"""Of the first guesses that can be kept, the part that must be: without a draft the odds come right, too.
Whether all of them are kept, one check asks."""
FAR = 6
"""Standard deviations by which what is counted may differ from what is expected."""
FEW = 24
"""Calls that are watched for the house rules."""
Pair = tuple[int, int]
"""How many guesses were kept, and the token after them."""
PAIRS = {"pairs": (np.ndarray, str)}
"""The form of what `probe_draws` records."""


def draw_odds(n_draft: int, n: int, seed: int) -> Challenge:
    """Draw odds q (K, V) and p (K + 1, V), n drafts (n, K) from q, and a seed for the generator."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(V)
    rows = [(order + SHIFT * place) % V for place in range(n_draft + 1)]
    p = np.stack([np.array(MODEL)[row] for row in rows])
    q = np.stack([np.array(DRAFT)[row] for row in rows[:n_draft]])
    drafts = np.stack([rng.choice(V, n, p=row) for row in q], axis=1)
    odds = {"p": p.astype(np.float32), "q": q.astype(np.float32)}
    return {**odds, "drafts": drafts, "seed": int(rng.integers(2**31))}


def probe_draws(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Verify each draft, and put the answers into an array (n, 2); or say in words what the first is that
    is none. Thousands of calls need no copies, so they are not watched; those of `probe_repeats` are."""
    unwatched = inspect.unwrap(student.verify_sampled)
    pairs = verify(unwatched, challenge, slice(None), challenge["seed"], numbers_of)
    for pair in pairs:
        if not all(type(part) is int for part in pair):
            return {"pairs": f"({pair[0]}, {pair[1]})"}
    limit = 2**40  # an int64 array holds no larger ones
    return {"pairs": np.array([[max(-1, min(part, limit)) for part in pair] for pair in pairs])}


def probe_repeats(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Verify each draft; and a few of them with one seed of the generator and two of torch's own, with
    another seed, and without a generator; and no draft at all, where the model is sure of a token."""
    few, seed = [], challenge["seed"]
    for local_seed, global_seed in (
        *((seed, 0), (seed, 1), (seed + 1, 0)),
        *((None, 0), (None, 0), (None, 1)),
    ):
        torch.manual_seed(global_seed)
        few.append(verify(student.verify_sampled, challenge, slice(FEW), local_seed))
    pairs: list[Any] = []
    sure, generator = torch.eye(V)[[sure_token(challenge)]], torch.Generator().manual_seed(seed)
    nothing = torch.empty(0, dtype=torch.int64), sure[:0], sure, generator
    ended = outcome(lambda: pairs.append(pair_of(student.verify_sampled(*nothing))))
    empty = "({}, {})".format(*pairs[0]) if pairs else ended
    return {"few": few, "empty": empty, **probe_draws(student, challenge)}


def sure_token(challenge: Challenge) -> int:
    """The token that is the only one to follow, where there is no draft."""
    return int(challenge["p"][0].argmax())


def verify(
    verify_sampled: Callable[..., Any],
    challenge: Challenge,
    which: slice,
    seed: int | None,
    read: Callable[[Any], list[Any]] = pair_of,
) -> list[list[Any]]:
    """Verify some of the drafts by one generator, or by torch's own; give the answers. Each call gets
    tensors of its own, for who writes into them must not stop the next one."""
    p, q, drafts = (torch.from_numpy(challenge[name]) for name in ("p", "q", "drafts"))
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return [
        read(verify_sampled(draft.clone(), q.clone(), p.clone(), generator))
        for draft in drafts[which]
    ]


def numbers_of(answer: Any) -> list[Any]:
    """The two numbers of an answer, those in tensors, too: that they must be ints is asked once, of the
    few that `probe_repeats` records."""
    if isinstance(answer, list | tuple):
        tensors = (isinstance(part, torch.Tensor) and part.numel() == 1 for part in answer)
        answer = [part.item() if one else part for part, one in zip(answer, tensors, strict=True)]
    return pair_of(answer)


def wrong_form(challenge: Challenge, evidence: Evidence) -> Verdict | None:
    """Say what is wrong with the form of the answers."""
    pairs, K = evidence["pairs"], challenge["drafts"].shape[1]
    if isinstance(pairs, str):
        return failed(f"verify_sampled gave {pairs}; wanted are two ints. What do you return?")
    if pairs.shape != (len(challenge["drafts"]), 2) or pairs.min() < 0 or pairs[:, 0].max() > K:
        return failed(
            f"Drafts of {K}: the number of kept tokens must lie in 0 … {K}; yours reaches "
            f"{pairs[:, 0].max()}. What do you count?"
        )
    if pairs[:, 1].max() >= V:
        return failed(f"A token outside 0 … {V - 1} came. What is it the index of?")
    return None


def chi_square(tokens: np.ndarray, odds: np.ndarray) -> float:
    """The chi-square of drawn tokens; infinite where one came that has no odds."""
    counts = np.bincount(tokens, minlength=V)
    if (counts[odds == 0] > 0).any():
        return float("inf")
    expected = len(tokens) * odds[odds > 0]
    return float(((counts[odds > 0] - expected) ** 2 / np.maximum(expected, 1e-9)).sum())


def wrong_odds(name: str, tokens: np.ndarray, p: np.ndarray, question: str) -> Verdict | None:
    """Say which token came too often or too rarely."""
    if not len(tokens):
        return failed(f"{name} never came. When does verify_sampled get so far?")
    odds = p.astype(np.float64) / p.astype(np.float64).sum()
    if (distance := chi_square(tokens, odds)) <= BOUND:
        return None
    drawn = np.bincount(tokens, minlength=V) / len(tokens)
    worst = int(np.abs(drawn - odds).argmax())
    if never := np.flatnonzero((odds == 0) & (drawn > 0)).tolist():
        worst = never[0]
    return failed(
        f"{name}: token {worst} came in {drawn[worst]:.0%} of {len(tokens):,} draws, the model gives it "
        f"{odds[worst]:.0%} (chi-square {distance:.0f}, at most {BOUND:.0f}). {question}"
    )


def first_guesses(challenge: Challenge) -> tuple[np.ndarray, np.ndarray]:
    """The first guess of each draft, and the probability min(1, p / q) with which each can be kept."""
    guesses = challenge["drafts"][:, 0]
    return guesses, np.minimum(1, challenge["p"][0, guesses] / challenge["q"][0, guesses])


def too_few_kept(challenge: Challenge, kept: np.ndarray) -> Verdict | None:
    """Say that hardly a first guess was kept, so that the draft was of no use."""
    n_kept, possible = int((kept > 0).sum()), float(first_guesses(challenge)[1].sum())
    if n_kept >= LEAST * possible:
        return None
    return failed(
        f"Of {len(kept):,} first guesses {n_kept:,} were kept; {possible:,.0f} could be, with the same "
        f"odds. Which guesses need no second thought?"
    )


def kept_too_often(challenge: Challenge, kept: np.ndarray) -> Verdict | None:
    """Say which first guess was kept more often than the model says it: nothing can make up for that."""
    first, p = first_guesses(challenge)[0], challenge["p"][0].astype(np.float64)
    counts = np.bincount(first[kept > 0], minlength=V)
    most = len(kept) * p + FAR * np.sqrt(len(kept) * p * (1 - p))
    if (counts <= most).all():
        return None
    worst = int((counts - most).argmax())
    return failed(
        f"Token {worst} was kept as the first guess in {counts[worst] / len(kept):.0%} of "
        f"{len(kept):,} drafts, and the model says it in {p[worst]:.0%}. Which of them must go?"
    )


def what_differs(first_time: list[Pair], once_more: list[Pair], n_draft: int) -> str:
    """Say in what two lists of answers (guesses kept, token) differ."""
    if [kept for kept, _ in first_time] != [kept for kept, _ in once_more]:
        return "other guesses kept"
    pairs = zip(first_time, once_more, strict=True)
    where = {first[0] == n_draft for first, again in pairs if first != again}
    if len(where) == 2:
        return "the same guesses kept, other tokens drawn"
    after = "every guess was kept" if where == {True} else "a guess was refused"
    return f"the same guesses kept, and other tokens drawn where {after}"


@check(
    "verify_sampled",
    draw=partial(draw_odds, 1, 1700),
    probe=probe_repeats,
    evidence=lambda challenge: {**PAIRS, "few": [[PAIR] * FEW] * 6, "empty": str},
)
def first_token_has_the_models_odds(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare the first token of each text with the first row of p; and see that draws depend on the
    generator, and on nothing else; and what is drawn where there is no draft."""
    for kept, token in chain(*evidence["few"]):
        if isinstance(kept, str) or isinstance(token, str):
            evidence = {**evidence, "pairs": f"({kept}, {token})"}
    if wrong := wrong_form(challenge, evidence):
        return wrong
    first_time, once_more, other, unseeded, unseeded_again, unseeded_other = evidence["few"]
    if first_time != once_more:
        return failed(
            f"Two generators with the same seed gave different answers: "
            f"{what_differs(first_time, once_more, len(challenge['q']))}. Where does each of your random "
            f"numbers come from?"
        )
    if first_time == other:
        return failed(
            f"Generators with different seeds gave the same {FEW} answers. Is anything drawn, and from "
            f"the generator?"
        )
    if unseeded != unseeded_again or unseeded == unseeded_other:
        answers = "different" if unseeded != unseeded_again else "the same"
        seeds = "the same seed" if unseeded != unseeded_again else "another seed"
        return failed(
            f"Without a generator: {seeds} in torch.manual_seed gave {answers} answers. Where do your "
            f"random numbers come from when generator is None?"
        )
    token = sure_token(challenge)
    if evidence["empty"] != (expected := f"(0, {token})"):
        return failed(
            f"A draft of no tokens, and a model that is sure of token {token}: verify_sampled came to "
            f"{evidence['empty']}, expected is {expected}. What is left to draw, and from which row?"
        )
    kept, token = evidence["pairs"].T
    first = np.where(kept > 0, challenge["drafts"][:, 0], token)
    p, q = challenge["p"][0], challenge["q"][0]
    question = _about_first(first, kept, p, q)
    wrong = wrong_odds("The first token, with a draft of one", first, p, question)
    return (
        wrong
        or too_few_kept(challenge, kept)
        or passed("The first token is distributed as the model says, whoever guessed.")
    )


def _about_first(first: np.ndarray, kept: np.ndarray, p: np.ndarray, q: np.ndarray) -> str:
    if (kept > 0).all():
        return "Every draft counts as kept. When is a token proposed too often, and what is counted then?"
    if chi_square(first, q.astype(np.float64) / q.sum()) <= BOUND:
        return "These are the odds of the draft. Where do those of the model come in?"
    share = float((kept > 0).mean())
    if abs(share - float(np.minimum(p, q).sum())) <= OFF:
        return (
            "As many are kept as should be. From which numbers is a token drawn after a rejection?"
        )
    return "With which probability is a drafted token kept?"


check_two = partial(
    check,
    "verify_sampled",
    probe=probe_draws,
    evidence=lambda challenge: PAIRS,
)


@check_two(draw=partial(draw_odds, 2, 1200))
def so_have_the_second_and_the_bonus(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare the second token, where the first was kept, with the second row of p; and the bonus, where
    both were, with the third."""
    if wrong := wrong_form(challenge, evidence):
        return wrong
    (kept, token), p = evidence["pairs"].T, challenge["p"]
    second = np.where(kept > 1, challenge["drafts"][:, 1], token)[kept > 0]
    question = "Which rows of p and q judge the second token, and which random number?"
    if wrong_odds("", np.where(kept > 0, challenge["drafts"][:, 0], token), p[0], ""):
        question = "The first one's odds are wrong, too. Does first_token_has_the_models_odds pass?"
    if wrong := wrong_odds("The second token, where the first was kept", second, p[1], question):
        return wrong
    question = "Which row of p says what comes after the whole draft?"
    wrong = wrong_odds("The bonus, where both were kept", token[kept == 2], p[2], question)
    return (
        wrong
        or kept_too_often(challenge, kept)
        or too_few_kept(challenge, kept)
        or passed("The second token and the bonus are distributed as the model says.")
    )


@check_two(draw=partial(draw_odds, 2, 1500))
def accepts_as_often_as_possible(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare the mean number of kept tokens with the most that leaves the odds right, and for each first
    guess how often it is kept."""
    if wrong := wrong_form(challenge, evidence):
        return wrong
    places = np.arange(2), challenge["drafts"]
    shares = np.minimum(1, challenge["p"][places] / challenge["q"][places])  # (n, 2)
    expected = float(shares.cumprod(axis=1).sum(axis=1).mean())
    mean = float(evidence["pairs"][:, 0].mean())
    if abs(mean - expected) > OFF:
        kept, first = evidence["pairs"][:, 0] > 0, shares[:, 0]
        if abs((kept - first).sum()) <= FAR * (first * (1 - first)).sum() ** 0.5:
            question = (
                "As many first guesses are kept as should be. Which numbers judge the second?"
            )
        elif mean < expected:
            question = (
                "Must a token be rejected that the model says at least as often as the draft?"
            )
        else:
            question = "What happens to a token that the draft proposes too often?"
        return failed(
            f"Drafts of two: {mean:.2f} are kept on average; by min(1, p / q) it should be "
            f"{expected:.2f}. {question}"
        )
    kept = evidence["pairs"][:, 0] > 0
    guesses, shares = first_guesses(challenge)
    for token in np.unique(guesses).tolist():
        own = guesses == token
        n, share = int(own.sum()), float(shares[own][0])
        if abs(kept[own].sum() - n * share) > FAR * (n * share * (1 - share)) ** 0.5:
            return failed(
                f"Drafts of two: as many are kept as should be, but token {token} as the first guess in "
                f"{kept[own].mean():.0%} of {n:,} drafts; by min(1, p / q) it should be {share:.0%}. "
                f"Which two numbers decide about a guess?"
            )
    return passed(
        f"{mean:.2f} of 2 drafted tokens are kept; no right rule that judges token by token keeps more."
    )
