"""Check streaming: the uncached text, a token for each one asked for, from a cache that may go back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import (
    WHICH_EXCEPTION,
    Truth,
    WrongChoice,
    first_wrong_choice,
    outcome,
    uncached,
)
from course.checks.drawing import build_model, draw_model, draw_tokens
from course.checks.passes import count_passes, new_cache
from course.checks.prefill_and_decode.chunks import (
    B,
    arguments_of,
    chunks_of,
    draw_long,
    draw_rows,
    in_short,
)
from course.checks.recorder import given
from course.model import MiniGPT
from course.world.tokenizer import END, PAD

CHUNK = 3


def draw_request(seed: int) -> Challenge:
    """Draw a model, prompts (3, P), and how many tokens are wanted."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng, n_layers=2)
    length, n_new = int(rng.integers(4, 8)), int(rng.integers(3, 5))
    prompt = draw_rows(rng, length, challenge["config"]["vocab_size"])
    return {**challenge, "prompt": prompt, "n_new": n_new}


class Reader:
    """Reads a stream, token by token.

    Args:
        batch: rows of each token.
        any_form: whether ids of another form than (B,) int64 are read as if they had it: one check alone
            asks for the form.

    Attributes:
        kinds: of each token, dtype and shape, or its type.
    """

    def __init__(self, tokens: Iterable[Any], batch: int = B, any_form: bool = False) -> None:
        self.tokens, self.batch, self.any_form = iter(tokens), batch, any_form
        self.kinds: list[str] = []
        self._given: list[Tensor] = []
        self._copies: list[Tensor] = []

    def __iter__(self) -> Iterator[None]:
        """Read one token a step; keep those that are int64 and (B,), and a copy of each."""
        for token in self.tokens:
            token = ids_of(token, self.batch) if self.any_form else token
            is_tensor = isinstance(token, Tensor)
            kind = f"{token.dtype} {tuple(token.shape)}" if is_tensor else type(token).__name__
            self.kinds.append(kind)
            if kind == f"torch.int64 ({self.batch},)":
                self._given.append(token)
                self._copies.append(token.clone())
            yield

    def read(self) -> Evidence:
        """Read what is left; give the kinds of all, and the kept numbers (B, n) as they came out and as
        they are now."""
        for _ in self:
            pass
        now, before = map(self._columns, (self._given, self._copies))
        return {"kinds": self.kinds, "tokens": before, "later": now}

    def _columns(self, tokens: list[Tensor]) -> np.ndarray:
        empty = torch.zeros(self.batch, 0, dtype=torch.int64)
        return (torch.stack(tokens, dim=1) if tokens else empty).numpy()


def ids_of(token: Any, batch: int) -> Any:
    """Copy one id for each row into a tensor (B,) int64; return what is none as it is."""
    try:
        ids = torch.tensor(token) if not isinstance(token, Tensor) else token.detach().clone()
        return ids.long().reshape(batch)
    except (TypeError, ValueError, RuntimeError):
        return token


STREAM = {"kinds": Each(str), "tokens": np.ndarray, "later": np.ndarray}
"""The form of what a reader has read."""


def wrong_tokens(case: str, streamed: Evidence, rows: int, n_new: int, V: int) -> Verdict | None:
    """Say what is wrong with the form, the number or the memory of a stream's tokens."""
    kinds, tokens, later = (streamed[name] for name in ("kinds", "tokens", "later"))
    expected = f"torch.int64 ({rows},)"
    if any(kind != expected for kind in kinds):
        return failed(
            f"{case}: the tokens that come out are {sorted(set(kinds))}, wanted is {expected}: one id "
            f"for each row of the batch."
        )
    if tokens.shape != (rows, len(kinds)) or (tokens < 0).any() or (tokens >= V).any():
        return failed(f"{case}: ids of shape {tokens.shape} came out, not all within 0 … {V - 1}.")
    if len(kinds) != n_new:
        number = f"{len(kinds)} token{'s' * (len(kinds) != 1)} came out"
        return failed(f"{case}: {number}. {_about_number(tokens, n_new)}")
    if later.shape != tokens.shape or (later != tokens).any():
        return failed(
            f"{case}: the tokens {tokens[0].tolist()} came out for row 0, and when the stream has "
            f"ended, they are {later[0].tolist() if later.ndim == 2 else '?'}. Is each token a tensor "
            f"of its own?"
        )
    return None


def wrong_text(
    case: str,
    challenge: Challenge,
    prompt: np.ndarray,
    n_new: int,
    streamed: Evidence,
    truth: Truth,
    tolerance: float,
    question: str = "",
) -> Verdict | None:
    """Say what is wrong with a stream of tokens that should continue the text `prompt` (B, P). Another
    question than the usual ones may be asked about a wrong choice."""
    rows, P = prompt.shape
    if wrong := wrong_tokens(case, streamed, rows, n_new, challenge["config"]["vocab_size"]):
        return wrong
    text = np.concatenate([prompt, streamed["tokens"]], axis=1)
    if choice := first_wrong_choice(truth(challenge, text), text, P, tolerance):
        return failed(
            f"{case}: batch row {choice.row}, new token {choice.step + 1}, is "
            f"{text[choice.row, P + choice.step]}; without a cache it is {choice.likeliest}, whose "
            f"logit leads by {choice.lead:.2g}. {question or _about_choice(text, P, choice)}"
        )
    return None


def _about_number(tokens: np.ndarray, n_new: int) -> str:
    if len(tokens.T) < n_new and tokens.size and (tokens[:, -1] == END).any():
        return f"The last of them is {END}, the id of <end>. Who said that a text ends there?"
    return "How many does each turn yield?"


def _about_choice(text: np.ndarray, P: int, wrong: WrongChoice) -> str:
    if wrong.likeliest == END:
        return f"{END} is the id of <end>. Is it chosen like any other token?"
    before, chosen = text[wrong.row, P + wrong.step - 1 : P + wrong.step + 1]
    if wrong.step and before == END and chosen in (END, PAD):
        return f"The token before it is {END}, the id of <end>. How does a text go on after it?"
    if wrong.step == 0 and (text[:, P] == text[:, P - 1]).all():
        return "It is the last token of the prompt, in every row. Which token is new?"
    if wrong.step == 0:
        return (
            "Which tokens were fed before it, each how often, and from which position's logits is it "
            "chosen?"
        )
    return "Which token was fed before it, in each row, and is it the likeliest of what followed?"


def start(student: SimpleNamespace, *arguments: Any, chunk_size: int | None = CHUNK) -> Any:
    """Start the student's stream, as an iterator whatever it is; None for its own chunk size."""
    tokens = student.stream(*arguments, *arguments_of(chunk_size))
    if not isinstance(tokens, Iterable):
        raise TypeError(f"stream gave {tokens!r}, from which no tokens come. Does it yield?")
    return iter(tokens)


# --- the text ------------------------------------------------------------------------------------


def ends_at_once(model: Challenge) -> Challenge:
    """Change a drawn model so that `<end>` is the likeliest token after any other, and 0 after it."""
    state = {name: array.copy() for name, array in model["state"].items()}
    state["embed.weight"][:, 0] = 50.0  # outweighs what the layers add
    state["embed.weight"][END, 0] = -50.0
    state["lm_head.weight"][:, 0] = 0.0
    state["lm_head.weight"][[END, 0], 0] = 50.0, -50.0
    return {**model, "state": state}


def draw_texts(seed: int) -> Challenge:
    """Draw a request; another one of the same sizes for the same model; and a single prompt (1, P) of a
    model that says `<end>` at once, and then goes on."""
    challenge, rng = draw_request(seed), np.random.default_rng([seed, 2])
    P, V = challenge["prompt"].shape[1], challenge["config"]["vocab_size"]
    ending = {**ends_at_once(draw_model(rng, n_layers=1)), "prompt": draw_tokens(rng, 1, P, V)}
    return {**challenge, "other": draw_rows(rng, P, V), "ending": ending}


def probe_text(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Stream two tokens; n_new tokens of two requests in turns; and n_new + 2 of a third, every other one
    of them `<end>`. Ask each for one more than it has."""
    model, ending, n_new = build_model(challenge), challenge["ending"], challenge["n_new"]

    def begin(model: MiniGPT, case: Challenge, prompt: np.ndarray, n: int) -> Reader:
        rows, P = prompt.shape
        cache = new_cache(case, rows, P + max(n, n_new))
        return Reader(islice(start(student, model, given(prompt), n, cache), n + 1), rows)

    two = begin(model, challenge, challenge["prompt"], 2).read()
    running = [begin(model, challenge, challenge[name], n_new) for name in ("prompt", "other")]
    for _ in zip_longest(*running):
        pass
    last = begin(build_model(ending), ending, ending["prompt"], n_new + 2)
    return {"streams": [two, *(stream.read() for stream in [*running, last])]}


@check(
    "stream",
    draw=draw_texts,
    probe=probe_text,
    evidence=lambda challenge: {"streams": [STREAM] * 4},
    truth=uncached,
)
def stream_writes_the_uncached_text(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    prompt, ending, n_new = challenge["prompt"], challenge["ending"], challenge["n_new"]
    case = f"A prompt (B, P) = {prompt.shape} and n_new"
    running = f"{case} = {n_new}, in turns with another stream that has a cache of its own"
    single = f"A single prompt, (B, P) = {ending['prompt'].shape}, n_new = {n_new + 2}"
    cases = (
        (f"{case} = 2", challenge, prompt, 2),
        (running, challenge, prompt, n_new),
        (f"{running}; of the other", challenge, challenge["other"], n_new),
        (single, ending, ending["prompt"], n_new + 2),
    )
    for case, streamed in zip(cases, evidence["streams"], strict=True):
        if wrong := wrong_text(*case, streamed, truth, tolerance):
            return wrong
    return passed(f"{n_new} tokens for each of {B} rows, the ones that the uncached model writes.")


# --- when the work is done -----------------------------------------------------------------------


def draw_turns(seed: int) -> Challenge:
    """Draw a request, and a single long prompt."""
    return {**draw_request(seed), "long": draw_long(np.random.default_rng([seed, 3]))}


Edge = tuple[np.ndarray, int | None, int, int, str, list[int], str]
"""A stream that is asked for its first token: the prompt (B, P), chunk_size (None: not given), n_new, the
places of an empty cache; what comes, the passes that are made for it, and a question to whom it does
not come."""


def edges(challenge: Challenge) -> list[Edge]:
    """List streams at the edges of what is allowed; the last one is of the long prompt."""
    prompt, n, long = challenge["prompt"], challenge["n_new"], challenge["long"]["prompt"]
    P, L, longest = prompt.shape[1], long.shape[1], challenge["config"]["max_seq_len"]
    room = "How many tokens are to be fed in all, and when is that known?"
    bounds = "Do the lines above the gap stand where they stood?"
    bad = prompt.copy()
    bad[-1, -1] = challenge["config"]["vocab_size"]
    one, chunks = "What does your prefill get of a prompt of one token?", chunks_of(P, CHUNK)
    named = "Which chunk_size does the signature name?"
    return [
        (prompt, CHUNK, n, P + n - 1, "a token", chunks, room),
        (prompt, CHUNK, 1, P, "a token", chunks, room),
        (prompt[:, :1], CHUNK, n, n, "a token", [1], one),
        (prompt, CHUNK, 0, P + n, "no token", [], "Who asked for one?"),
        (prompt, CHUNK, 0, P - 2, "no token", [], "How much room does a stream of no tokens need?"),
        (prompt, CHUNK, n, P + n - 2, "CacheFull", [], room),
        (prompt, CHUNK, n, P - 1, "CacheFull", [], room),
        (prompt, CHUNK, -1, P + n, "ValueError", [], bounds),
        (prompt, CHUNK, longest + 1, P + n, "ValueError", [], bounds),
        (prompt[:, :1], CHUNK, longest, longest, "a token", [1], bounds),
        (prompt, CHUNK, longest, longest, "CacheFull", [], room),
        (bad, CHUNK, n, P + n, "ValueError", [], bounds),
        (bad, CHUNK, 0, P + n, "ValueError", [], bounds),
        (prompt, 0, 0, P + n, "no token", [], "Who asked for one?"),
        (long, None, 2, L + 2, "a token", chunks_of(L, None), named),
    ]


def probe_laziness(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Record the forward passes so far, as tokens a pass: before the first token is asked for, when
    each came out, and when the stream has ended. Cut that cache back to one token, and ask for none; then
    those of streams at the edges."""
    model, n_new, prompt = build_model(challenge), challenge["n_new"], given(challenge["prompt"])
    P, n_given = prompt.shape[1], 0
    cache = new_cache(challenge, B, P + n_new)
    with count_passes(model) as passes:
        tokens = start(student, model, prompt, n_new, cache, chunk_size=P)
        so_far = [list(passes)]
        for _ in range(n_new + 1):
            n_given += next(tokens, None) is not None
            so_far.append(list(passes))
    held = len(cache)
    cache.truncate(1)
    none = outcome(lambda: next(start(student, model, prompt, 0, cache), None))
    return {
        "passes": so_far,
        "given": n_given,
        "held": held,
        "asked for none": [none, len(cache)],
        "edges": [_first_token(student, challenge, edge) for edge in edges(challenge)],
    }


def _first_token(student: SimpleNamespace, challenge: Challenge, edge: Edge) -> Evidence:
    """Ask a stream at the edge for its first token; say what came, and what was fed."""
    prompt, chunk_size, n_new, places, *_ = edge
    case = challenge["long"] if chunk_size is None else challenge
    model, cache, tokens = build_model(case), new_cache(case, len(prompt), places), []
    request = model, given(prompt), n_new, cache
    with count_passes(model) as passes:
        ended = outcome(
            lambda: tokens.append(next(start(student, *request, chunk_size=chunk_size), None))
        )
    if tokens:
        ended = "no token" if tokens[0] is None else "a token"
    return {"outcome": ended, "passes": list(passes), "held": len(cache)}


def laziness_form(challenge: Challenge) -> Evidence:
    edge = {"outcome": str, "passes": Each(int), "held": int}
    return {
        "passes": [Each(int)] * (challenge["n_new"] + 2),
        "given": int,
        "held": int,
        "asked for none": [str, int],
        "edges": [edge] * len(edges(challenge)),
    }


@check("stream", draw=draw_turns, probe=probe_laziness, evidence=laziness_form)
def no_step_before_it_is_asked_for(challenge: Challenge, evidence: Evidence) -> Verdict:
    P, n_new = challenge["prompt"].shape[1], challenge["n_new"]
    case = f"A prompt of {P} tokens as one chunk, n_new = {n_new}"
    expected = [[], *([P] + [1] * step for step in range(n_new)), [P] + [1] * (n_new - 1)]
    for moment, (passes, due) in enumerate(zip(evidence["passes"], expected, strict=True)):
        if passes != due:
            when, question = (
                f"when token {moment} comes out",
                "Which of these passes was asked for?",
            )
            if moment == 0:
                when, question = "before a token is asked for", "Who asked for a token yet?"
            elif moment == n_new + 1:
                when, question = (
                    "when the stream has ended",
                    "Who reads the logits of the last pass?",
                )
            elif moment == 1 and passes[:1] != due:
                question = "Which pass knows the first new token?"
            return failed(
                f"{case}: {when}, the forward passes so far had {in_short(passes)} tokens each, wanted "
                f"is {due}. {question}"
            )
    if evidence["given"] != n_new or evidence["held"] != P + n_new - 1:
        return failed(
            f"{case}: {evidence['given']} tokens came out, and the cache then holds "
            f"{evidence['held']}; wanted are {n_new} and {P + n_new - 1}. Which token is never fed, "
            f"and into which cache do the others go?"
        )
    for edge, result in zip(edges(challenge), evidence["edges"], strict=True):
        if wrong := _wrong_edge(edge, result):
            return wrong
    if evidence["asked for none"] != ["returned", 1]:
        ended, held = evidence["asked for none"]
        return failed(
            f"n_new = 0 for a prompt of {P} tokens, a cache of {P + n_new} places that holds 1: it came "
            f"to {ended}, and {held} are held. What do you do with the cache before you know that a "
            f"token is wanted?"
        )
    return passed(
        "The first token comes from the prefill, every other from one step, which is run when the "
        "token is asked for."
    )


def _wrong_edge(edge: Edge, result: Evidence) -> Verdict | None:
    prompt, chunk_size, n_new, places, ended, passes, question = edge
    P, n_fed = prompt.shape[1], sum(passes)
    if result == {"outcome": ended, "passes": passes, "held": n_fed}:
        return None
    if chunk_size and (result["outcome"], sum(result["passes"])) == (ended, n_fed):
        question = "What becomes of chunk_size?"
    if (ended, result["outcome"], result["passes"]) == ("CacheFull", "ValueError", []):
        question = WHICH_EXCEPTION
    return failed(
        f"A prompt of {P} token{'s' * (P > 1)}, chunk_size "
        f"{'not given' if chunk_size is None else chunk_size}, n_new = {n_new}, an empty cache of "
        f"{places} places: asked for its first token, the stream gave {result['outcome']} after passes "
        f"of {in_short(result['passes'])} tokens, and {result['held']} are held. Wanted is {ended}, "
        f"{passes}, and {n_fed}. {question}"
    )


# --- going back ----------------------------------------------------------------------------------


def draw_edit(seed: int) -> Challenge:
    """Draw a model, and two prompts (3, ·) that begin alike: what they share, and how each ends. The
    second is the longer one, and leaves one place of the cache free."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng, n_layers=2)
    V = challenge["config"]["vocab_size"]
    shared, n_new = int(rng.integers(3, 6)), int(rng.integers(3, 5))
    first = n_new + int(rng.integers(1, 3))  # so long that what is cut off would not fit as well
    lengths = {"shared": shared, "first": first, "second": first + int(rng.integers(1, 3))}
    parts = {name: draw_tokens(rng, B, n, V) for name, n in lengths.items()}
    return {**challenge, **parts, "n_new": n_new}


def probe_edit(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Stream the first text, cut the cache back to what both share, and stream the second."""
    model, n_new = build_model(challenge), challenge["n_new"]
    second, n_shared = given(challenge["second"]), challenge["shared"].shape[1]
    cache = new_cache(challenge, B, n_shared + second.shape[1] + n_new)
    text = given(np.concatenate([challenge["shared"], challenge["first"]], axis=1))
    tokens = islice(start(student, model, text, n_new, cache), n_new + 1)
    before = Reader(tokens, any_form=True).read()
    kept = len(cache)
    cache.truncate(min(n_shared, kept))
    after: list[Evidence] = []
    ended = outcome(
        lambda: after.append(
            Reader(start(student, model, second, n_new, cache), any_form=True).read()
        )
    )
    held = {"kept": kept, "held": len(cache)}
    return {"before": before, "outcome": ended, "after": after, **held}


def edit_form(challenge: Challenge) -> Evidence:
    return {"before": STREAM, "kept": int, "outcome": str, "after": Each(STREAM), "held": int}


@check("stream", draw=draw_edit, probe=probe_edit, evidence=edit_form, truth=uncached)
def rollback_equals_a_fresh_start(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    shared, n_new = challenge["shared"], challenge["n_new"]
    first, second = (
        np.concatenate([shared, challenge[name]], axis=1) for name in ("first", "second")
    )
    k, expected = shared.shape[1], second.shape[1] + n_new - 1
    case = f"A prompt of {first.shape[1]} tokens, n_new = {n_new}"
    problem = wrong_text(case, challenge, first, n_new, evidence["before"], truth, tolerance)
    if problem:
        return problem
    kept = first.shape[1] + n_new - 1
    if evidence["kept"] != kept:
        question = "Which cache do you fill, and what becomes of it at the end?"
        if evidence["kept"] == kept + 1:
            question = "Which token need never be fed?"
        return failed(
            f"{case}: the cache then holds {evidence['kept']} tokens, wanted are {kept}. {question}"
        )
    case = (
        f"A text was streamed, the cache (of {expected + 1} places) cut back to its first {k} tokens, "
        f"and a prompt of {second.shape[1] - k} goes on from there, n_new = {n_new}"
    )
    if evidence["outcome"] != "returned":
        return failed(f"{case}: {evidence['outcome']}. Who knows how many tokens are held now?")
    (after,), question = evidence["after"], "What did the cache hold when it was chosen?"
    if evidence["held"] != expected:
        return failed(
            f"{case}: the cache holds {evidence['held']} tokens at the end, wanted are {expected}. "
            f"Which of them were there before you began?"
        )
    problem = wrong_text(case, challenge, second, n_new, after, truth, tolerance, question)
    if problem:
        return problem
    return passed(
        f"Cut back to the {k} tokens that both share, the edited prompt is continued as if the "
        f"first had never been."
    )
