"""The hidden checks of lesson 05: bills added up matrix by matrix, and what misreadings would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from course.checks import roofline as visible
from course.checks.check import by_name
from course.checks.roofline.misread import Answer
from course.checks.roofline.passes import Call, Sizes
from course.model.config import GPTConfig

# --- attention -----------------------------------------------------------------------------------


def attention(sizes: Sizes, call: Call, telling: bool) -> dict[str, Answer]:
    """Count what attention looks at, token by token."""
    c, (T, P, B, _) = GPTConfig(**sizes), call
    looks = int((P + np.arange(1, T + 1)).sum())
    look = 4 * c.head_dim  # a score, and a share of a value
    right = looks * B * c.n_layers * c.n_heads * look
    return {"attention_flops": answer(right, misread_attention(c, call, looks) if telling else {})}


def misread_attention(c: GPTConfig, call: Call, looks: int) -> dict[str, float]:
    """Count what students take for attention.

    Args:
        looks: of all new tokens of a row, rightly counted.
    """
    L, H, G, D = c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim
    T, P, B, _ = call
    own = int(np.arange(1, T + 1).sum())  # the new tokens, looked at by each other and themselves
    looks_alone = {
        "no mask": T * (P + T),
        "past forgotten": own,
        "past once": P + own,
        "not itself": looks - T,
        "half a square": T * P + T * T // 2,
        "half a square, and halves": T * P + T * T / 2,
        "old ones look": (P + T) * (P + T + 1) // 2,
        "all look at all": (P + T) ** 2,
        "half of all": T * (P + T + 1) // 2,
        "one looks": P + T,
        "one looks at the old": P + 1,
        "prompt without the old": own if T > 1 else P + 1,
        "itself twice": looks + T,
        "exchanged": P * T + int(np.arange(P + 1).sum()),
        "up to the model's length": T * min(P, c.max_seq_len) + own,
    }
    look, heads = 4 * D, B * L * H
    return {name: count * heads * look for name, count in looks_alone.items()} | {
        "half": looks * heads * look // 2,
        "quarter": looks * heads * look // 4,
        "softmax too": looks * heads * (look + 5),  # greatest, difference, exp, sum, quotient
        "heads with keys": looks * B * L * G * look,
        "values of heads with keys": looks * B * L * (H + G) * look // 2,
        "group width": looks * heads * look * H // G,
        "whole width in each head": looks * heads * look * H,
        "one layer": looks * B * H * look,
        "one head": looks * B * L * look,
        "one row": looks * L * H * look,
        "rows as one text": (B * T * P + int(np.arange(B * T + 1).sum())) * L * H * look,
    }


def answer(right: float, misread: dict[str, float]) -> Answer:
    return {"right": right, "misread": misread}


# --- matrices ------------------------------------------------------------------------------------


class Product(NamedTuple):
    """(rows, k) times (k, n), as often as `times` in a forward pass."""

    name: str
    times: int
    rows: int
    k: int
    n: int


def products(sizes: Sizes, call: Call) -> list[Product]:
    """List the products of a forward pass: seven in every layer, and the logits."""
    c, rows = GPTConfig(**sizes), call.batch * call.n_new
    C, kv, f = c.d_model, c.n_kv_heads * c.head_dim, c.d_ff
    widths = {"wq": (C, C), "wk": (C, kv), "wv": (C, kv), "wo": (C, C)}
    widths |= {"gate": (C, f), "up": (C, f), "down": (f, C)}
    layer = [Product(name, c.n_layers, rows, *width) for name, width in widths.items()]
    return [*layer, Product("lm_head", 1, call.batch, C, c.vocab_size)]


def changed(all_of_them: list[Product], names: str, **values: int) -> list[Product]:
    """Give the named products other sizes."""
    return [part._replace(**values) if part.name in names.split() else part for part in all_of_them]


Misread = Iterator[tuple[str, list[Product]]]
"""Lists of products that students take for the right one, by name."""
LAYERS = "wq wk wv wo gate up down"


def misread_shapes(sizes: Sizes, call: Call) -> Misread:
    """Name lists with other matrices."""
    parts, c = products(sizes, call), GPTConfig(**sizes)
    C, rows = c.d_model, call.batch * call.n_new
    yield "no head", changed(parts, "lm_head", times=0)
    yield "no head where tied", changed(parts, "lm_head", times=int(not c.tie_embeddings))
    yield "embedding too", [*parts, Product("embed", 1, rows, c.vocab_size, C)]
    yield (
        "embedding too, unless tied",
        [*parts, Product("embed", int(not c.tie_embeddings), rows, c.vocab_size, C)],
    )
    yield "head in every layer", changed(parts, "lm_head", times=c.n_layers)
    yield "one layer", changed(parts, LAYERS, times=1)
    yield "no wo", changed(parts, "wo", times=0)
    yield "two in the mlp", changed(parts, "gate", times=0)
    yield "wide keys", changed(parts, "wk wv", n=C)
    yield "narrow keys", changed(parts, "wk wv", n=c.head_dim)
    yield "group width", changed(parts, "wk wv", n=C // c.n_kv_heads)
    yield "wide mlp", changed(changed(parts, "gate up", n=4 * C), "down", k=4 * C)


def misread_rows(sizes: Sizes, call: Call) -> Misread:
    """Name lists of the right matrices with other rows."""
    parts = products(sizes, call)
    yield "all logits", changed(parts, "lm_head", rows=call.batch * call.n_new)
    yield "logits of one row", changed(parts, "lm_head", rows=1)
    yield "one row", changed(changed(parts, LAYERS, rows=1), "lm_head", rows=1)
    yield "no batch", changed(parts, LAYERS, rows=call.n_new)
    yield "no batch at all", changed(changed(parts, LAYERS, rows=call.n_new), "lm_head", rows=1)


def bill(
    sizes: Sizes,
    call: Call,
    telling: bool,
    count: Callable[[Product], int],
    *misread: Callable[[Sizes, Call], Misread],
) -> Answer:
    """Count all products, and what students take for them.

    Args:
        count: counts what one product costs, once.
        misread: name what is taken for them.
    """

    def total(parts: list[Product]) -> int:
        return sum(part.times * count(part) for part in parts)

    wrong = [pair for name_them in misread for pair in name_them(sizes, call)] if telling else []
    right = total(products(sizes, call))
    return answer(right, {name: total(parts) for name, parts in wrong})


def in_bytes(numbers: Answer, size: int) -> Answer:
    """Turn a count of numbers into bytes, and add what wrong bytes an element make of it."""
    right = numbers["right"]
    misread = {name: size * count for name, count in numbers["misread"].items()}
    if misread:
        misread |= {"numbers": right, "two bytes": 2 * right, "four bytes": 4 * right}
        misread |= {"bits": 8 * size * right}
    return answer(size * right, misread)


def matrices(sizes: Sizes, call: Call, telling: bool) -> dict[str, Answer]:
    """Count the operations of all products."""
    both = misread_shapes, misread_rows
    counted = bill(sizes, call, telling, lambda part: 2 * part.rows * part.k * part.n, *both)
    if telling:
        right, looked = counted["right"], attention(sizes, call, True)["attention_flops"]
        counted["misread"] |= {"multiply-add as one": right // 2} | {
            name: right
            - looked["right"]
            + looked["misread"][taken]  # attention, written out wrongly
            for name, taken in (
                ("looks without a mask", "no mask"),
                ("half of the looks", "half"),
                ("looks of heads with keys", "heads with keys"),
            )
        }
    return {"matrix_flops": counted}


def weights(sizes: Sizes, call: Call, telling: bool) -> dict[str, Answer]:
    """Count the numbers of all matrices, each once."""
    counted = bill(sizes, call, telling, lambda part: part.k * part.n, misread_shapes)
    if telling:
        right = counted["right"]
        counted["misread"] |= {
            "for every row": right * call.batch,
            "for every token": right * call.batch * call.n_new,
            "for every token of a row": right * call.n_new,
        }
    return {"weight_bytes": in_bytes(counted, call.bytes_per_element)}


def activations(sizes: Sizes, call: Call, telling: bool) -> dict[str, Answer]:
    """Count the numbers that go into all products and come out of them."""
    both = misread_shapes, misread_rows
    counted = bill(sizes, call, telling, lambda part: part.rows * (part.k + part.n), *both)
    if telling:
        parts = products(sizes, call)
        read = {part.name: part.times * part.rows * part.k for part in parts}
        outputs = counted["right"] - sum(read.values())
        shared = sum(read[name] for name in ("wk", "wv", "up"))
        (T, P, B, _), c = call, GPTConfig(**sizes)
        scores = B * c.n_layers * c.n_heads * T * (P + T)
        counted["misread"] |= {
            "scores too": counted["right"] + scores,
            "scores twice": counted["right"] + 2 * scores,  # written, and read
            "lookup too": counted["right"] + B * T * c.d_model,
            "residuals too": counted["right"] + 4 * c.n_layers * B * T * c.d_model,
            "inputs alone": sum(read.values()),
            "outputs alone": outputs,
            "outputs of layers alone": outputs + read["lm_head"],
            "shared inputs once": counted["right"] - shared,
        }
    return {"activation_bytes": in_bytes(counted, call.bytes_per_element)}


# --- the cache -----------------------------------------------------------------------------------


def cache(sizes: Sizes, call: Call, telling: bool) -> dict[str, Answer]:
    """Count keys and values, layer by layer and token by token."""
    c, (T, P, B, size) = GPTConfig(**sizes), call
    token = sum(c.n_layers * c.n_kv_heads * c.head_dim for _ in "kv")  # numbers of one token
    written, read = answer(B * T * token, {}), answer(B * (P + T) * token, {})
    if telling:
        looks = int((P + np.arange(1, T + 1)).sum())
        tokens = {
            "not itself": P,
            "new ones alone": T,
            "one new": P + 1,
            "all but the last": P + T - 1,
            "nothing at first": P + T if P else 0,
            "for every token": T * (P + T),
            "for every look": looks,
            "up to the model's length": min(P + T, c.max_seq_len),
            "all of the model's length": c.max_seq_len,
        }
        written["misread"] = misread_cache(c, T, token, B, {"whole cache": P + T, "one token": 1})
        read["misread"] = misread_cache(c, P + T, token, B, tokens)
    return {"kv_written_bytes": in_bytes(written, size), "kv_read_bytes": in_bytes(read, size)}


def misread_cache(
    c: GPTConfig, tokens: int, token: int, rows: int, other: dict[str, int]
) -> dict[str, float]:
    """Count what students take for the numbers of tokens in a cache.

    Args:
        tokens: of each row.
        token: numbers that a cache keeps of one.
        other: other counts of tokens, by name.
    """
    numbers = rows * tokens * token
    return {
        "heads with queries": numbers * c.n_heads // c.n_kv_heads,
        "one head": numbers // c.n_kv_heads,
        "keys alone": numbers // 2,
        "one layer": numbers // c.n_layers,
        "shared by all rows": tokens * token,
        "nothing": 0,
    } | {name: rows * count * token for name, count in other.items()}


# --- roofs ---------------------------------------------------------------------------------------


def attainable(intensity: float, machine: dict[str, Any]) -> Answer:
    """Cut what the bytes of one second allow off at what the machine can do in a second."""
    peak, rate = machine["flops_per_second"], machine["bytes_per_second"]
    fed = intensity * rate
    floor = math.floor(peak / rate)
    return {
        "right": fed if fed < peak else peak,
        "misread": {
            "slope alone": fed,
            "flat alone": peak,
            "higher": max(fed, peak),
            "bytes": min(rate, peak),
            "flops for bytes": min(rate, peak / intensity),
            "one after the other": 1 / (1 / peak + 1 / fed),
            "divided": min(peak, rate / intensity),
            "seconds": max(1 / peak, 1 / fed),
            "share": min(1.0, fed / peak),
            "whole intensity": min(peak, math.floor(intensity) * rate),
            "at least one": min(peak, max(1.0, intensity) * rate),
            "whole balance": fed if intensity < floor else peak,
        },
    }


def bound(cost: dict[str, int], machine: dict[str, Any]) -> Answer:
    """Tell on which side of the ridge a cost lies: left of it bytes are short."""
    flops, balance = cost["flops"], machine["flops_per_second"] / machine["bytes_per_second"]
    parts = {name: n for name, n in cost.items() if name != "flops"}
    moved = math.fsum(parts.values())

    def side(bytes_: float, ridge: float = balance) -> str:
        return "memory" if flops < ridge * bytes_ else "compute"

    without = {name: moved - n for name, n in parts.items()}
    cached = parts["weight_bytes"] + parts["kv_read_bytes"]
    return {
        "right": side(moved),
        "misread": {
            "exchanged": "compute" if side(moved) == "memory" else "memory",
            "more of what": side(moved, 1.0),
            "always memory": "memory",
            "always compute": "compute",
            "weights alone": side(parts["weight_bytes"]),
            "weights and reads": side(cached),
            "no weights": side(without["weight_bytes"]),
            "no activations": side(without["activation_bytes"]),
            "no reads": side(without["kv_read_bytes"]),
            "no writes": side(without["kv_written_bytes"]),
            "a hundred": side(moved, 100.0),
            "whole numbers": "memory" if round(flops / moved) < round(balance) else "compute",
        },
    }


CHECKS = by_name(
    visible.attention_is_causal.hidden(truth=attention),
    visible.matrices_match_the_counter.hidden(truth=matrices),
    visible.weights_are_read_once.hidden(truth=weights),
    visible.cache_is_read_and_written.hidden(truth=cache),
    visible.activations_go_in_and_out.hidden(truth=activations),
    visible.roof_has_two_parts.hidden(truth=attainable),
    visible.bound_is_the_lower_roof.hidden(truth=bound),
    visible.clock_waits_for_the_work,
    visible.warm_up_is_not_timed,
    visible.one_slow_repeat_changes_nothing,
)
