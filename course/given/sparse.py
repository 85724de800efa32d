"""What lesson 14 is given: checks of arguments, and a model that answers while it reads only some rows.

    asked = questions_about_places(20)
    share_found(model, asked, read)                # each step reads what it chooses
    share_found(model, asked, everything, keep)    # most rows are thrown away before the question

Everything before the question is read densely, once for each story; from its first word on, `read`
decides what each head looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from course.minigpt.mini_gpt import merge_heads, split_heads
from course.model import MiniGPT
from course.model.bounds import check_between, check_grouped, check_heads
from course.world.evaluation import held_out
from course.world.tokenizer import encode

LARGEST = 2**31
LONG_AGO = 32
"""Tokens: a place that was said at least so long ago is asked for here."""

Read = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attends: q (1, H, 1, D) to k and v (1, G, S, D), or to some of their rows."""
Keep = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor, Tensor]]
"""Throws rows away: of q (1, H, T, D), k and v (1, G, T, D) of a text up to its answer, and the number of
the token "Where", it returns keys, values and numbers of the rows that are kept."""


# --- the checks of arguments ---------------------------------------------------------------------


def check_paged(keys: Tensor, size: int) -> None:
    """Check keys (B, G, S, D) that are cut into pages of `size`."""
    check_heads(keys)
    check_between("size", size, 1, LARGEST)


def check_bounds(q: Tensor, lo: Tensor, hi: Tensor) -> None:
    """Check that one query (B, H, 1, D) belongs to the bounds of pages, (B, G, P, D) each."""
    check_grouped(q, lo, hi, None)
    check_one_query(q)


def check_one_query(q: Tensor) -> None:
    """Check that there is one query for each head."""
    if q.shape[2] != 1:
        raise ValueError(f"one query reads at a time, (B, H, 1, D); got {tuple(q.shape)}")


def check_choice(scores: Tensor, n: int, newest: int) -> None:
    """Check scores (B, G, P), how many are chosen, and how many of these are the last ones."""
    if scores.dim() != 3 or 0 in scores.shape:
        raise ValueError(f"scores must be (B, G, P), none of them 0; got {tuple(scores.shape)}")
    check_between("n", n, 1, LARGEST)
    check_between("newest", newest, 0, n)


def check_pages_read(q: Tensor, k: Tensor, v: Tensor, pages: Tensor, size: int) -> None:
    """Check that one query can read these pages, (B, G, n) int64, of keys and values."""
    check_grouped(q, k, v, None)
    check_one_query(q)
    check_between("size", size, 1, LARGEST)
    whole = (*k.shape[:2], "n")
    if pages.dtype != torch.int64 or pages.dim() != 3 or pages.shape[:2] != k.shape[:2]:
        found = f"{pages.dtype} {tuple(pages.shape)}"
        raise ValueError(f"pages must be int64 (B, G, n) = {whole}, got {found}")
    n_pages = -(-k.shape[2] // size)
    if not pages.shape[2] or int(pages.min()) < 0 or int(pages.max()) >= n_pages:
        raise ValueError(
            f"{k.shape[2]} rows in pages of {size} are pages 0 … {n_pages - 1}, at least one of which "
            f"is read; got {pages.tolist()}"
        )


def check_shrinking(q: Tensor, k: Tensor, v: Tensor, budget: int, recent: int) -> None:
    """Check the last T queries (B, H, T, D) of S rows, and how many rows are kept of these."""
    check_grouped(q, k, v, None)
    if q.shape[2] > k.shape[2]:
        raise ValueError(f"{q.shape[2]} queries are no last tokens of {k.shape[2]} rows")
    check_between("budget", budget, 1, LARGEST)
    check_between("recent", recent, 0, budget)


# --- a model that reads some rows ----------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A place that is asked for in a story.

    Attributes:
        tokens: the story, (1, T) int64.
        where: the number of the token "Where".
        answer: the number of the token that names the place.
    """

    tokens: Tensor
    where: int
    answer: int


def questions_about_places(n_stories: int) -> list[Asked]:
    """List the questions "Where is the … ?" of held-out stories about places said long ago."""
    asked = []
    for story in held_out(n_stories):
        words, tokens = story.text.split(), encode(story.text)
        for question in story.questions:
            before = words[: question.answer]
            if question.kind == "place" and "Where" in before[-15:]:
                where = len(before) - 1 - before[::-1].index("Where")
                if question.distance >= LONG_AGO:
                    asked.append(Asked(tokens, where, question.answer))
    return asked


@torch.no_grad()
def dense_rows(model: MiniGPT, tokens: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Read a text densely; return queries (1, H, T, D), keys and values (1, G, T, D) of each layer."""
    rows, positions = [], torch.arange(tokens.shape[1])
    x = model.embed(tokens)  # (1, T, C)
    for block in model.blocks:
        normed = block.attn_norm(x)
        rows.append(_projected(block.attn, normed, positions))
        x = x + model.attention_layer(block.attn, normed, positions)
        x = x + block.mlp(block.mlp_norm(x))
    return rows


@torch.no_grad()
def share_found(
    model: MiniGPT, asked: Sequence[Asked], read: Read, keep: Keep | None = None
) -> float:
    """Measure how many of the places the model finds.

    Args:
        asked: questions; those of one story stand together.
        read: what a head looks at in each step from "Where" on.
        keep: which rows are kept of those before "Where"; None: all. It is given the queries of the
            whole text up to the answer, so that it may also use those to come.

    Returns:
        The part of the places that are the likeliest next token, 0 … 1.
    """
    found = 0
    for _, questions in groupby(asked, lambda question: id(question.tokens)):
        rows = None
        for question in questions:
            rows = rows or dense_rows(model, question.tokens)
            cache = list(_rows_before(rows, question, keep))
            right = question.tokens[0, question.answer]
            found += int(_next_token(model, question, cache, read) == right)
    return found / len(asked)


def _rows_before(
    rows: Sequence[tuple[Tensor, ...]], question: Asked, keep: Keep | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the keys and values of each layer that are left when "Where" comes."""
    for q, k, v in rows:
        if keep is None:
            yield k[:, :, : question.where], v[:, :, : question.where]
        else:
            read_so_far = (x[:, :, : question.answer] for x in (q, k, v))
            keys, values, _ = keep(*read_so_far, question.where)
            yield keys, values


def _next_token(
    model: MiniGPT, question: Asked, cache: list[tuple[Tensor, Tensor]], read: Read
) -> Tensor:
    """Feed the words from "Where" on, one at a time; positions count on as if nothing were missing."""
    for position in range(question.where, question.answer):
        at = torch.tensor([position])
        x = model.embed(question.tokens[:, position : position + 1])  # (1, 1, C)
        for layer, block in enumerate(model.blocks):
            q, k, v = _projected(block.attn, block.attn_norm(x), at)
            cache[layer] = tuple(
                torch.cat([old, new], 2) for old, new in zip(cache[layer], (k, v), strict=True)
            )
            x = x + block.attn.wo(merge_heads(read(q, *cache[layer])))
            x = x + block.mlp(block.mlp_norm(x))
    return model.lm_head(model.norm(x))[0, -1].argmax()


def _projected(attn: torch.nn.Module, x: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
    """Make rotated queries and keys, and values, (1, heads, T, D)."""
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)
    k = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)
    return q, k, split_heads(attn.wv(x), attn.n_kv_heads)
