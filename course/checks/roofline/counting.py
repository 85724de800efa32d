"""What a forward pass costs: each part of the bill on its own, against a model that is weighed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import plain
from course.config import GPTConfig
from course.layers import Attention
from course.model import MiniGPT


class Call(NamedTuple):
    """One forward pass: T new tokens after P cached ones in each of B rows."""

    n_new: int
    n_past: int
    batch: int
    bytes_per_element: int


Bill = dict[str, int]
"""`matrix_flops`, `attention_flops`, and the four byte counts of a Cost, by name."""
Truth = Callable[[dict[str, Any], Call], Bill]
Calls = list[tuple[int, int, int, int]]
DrawCalls = Callable[[np.random.Generator], Calls]
Ask = Callable[[dict[str, Any], Call, Bill, Bill], str]


# --- the truth of the visible checks -------------------------------------------------------------


def projections_only(attn: Attention, x: Tensor, _: Tensor) -> Tensor:
    """An attention layer's four matrix products, with no attention between them."""
    attn.wk(x)
    attn.wv(x)
    return attn.wo(attn.wq(x))


def weigh(config: dict[str, Any], call: Call) -> Bill:
    """Run a model of that config on torch's "meta" device, which knows shapes and no numbers, and
    count what goes through it; look at every pair of attention; and make the cache, as shapes."""
    return dict(_weigh(GPTConfig(**config), call))


@functools.lru_cache(maxsize=512)  # five checks ask for the same models
def _weigh(sizes: GPTConfig, call: Call) -> Bill:
    size, moved = call.bytes_per_element, 0

    def weigh_rows(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal moved
        moved += inputs[0].numel() + output.numel()

    with torch.device("meta"):
        model = MiniGPT(sizes, attention_layer=projections_only)
        x = model.embed(torch.zeros(call.batch, call.n_new, dtype=torch.int64))  # (B, T, C)
        one_token = torch.empty(2, sizes.n_layers, call.batch, sizes.n_kv_heads, sizes.head_dim)
        looks = torch.ones(call.n_new, call.n_past + call.n_new, dtype=torch.bool)
    matrices = [module for module in model.modules() if isinstance(module, nn.Linear)]
    for matrix in matrices:
        matrix.register_forward_hook(weigh_rows)
    with FlopCounterMode(display=False) as counter:
        for block in model.blocks:
            x = x + model.attention_layer(block.attn, block.attn_norm(x), None)
            x = x + block.mlp(block.mlp_norm(x))
        model.lm_head(model.norm(x[:, -1:]))  # (B, 1, V)
    pairs = sum(call.n_past + token + 1 for token in range(looks.shape[0]))
    heads = call.batch * sizes.n_layers * sizes.n_heads
    return {
        "matrix_flops": counter.get_total_flops(),
        "attention_flops": heads
        * pairs
        * 2
        * (2 * sizes.head_dim),  # a score; its share of a value
        "weight_bytes": size * sum(matrix.weight.numel() for matrix in matrices),
        "kv_read_bytes": size * one_token.numel() * looks.shape[1],
        "kv_written_bytes": size * one_token.numel() * looks.shape[0],
        "activation_bytes": size * moved,
    }


# --- challenges ----------------------------------------------------------------------------------


def draw_configs(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Three models: grouped heads, as many KV heads as query heads with tied embeddings, one KV
    head. No two sizes of a model are equal, and 2 (keys and values), 3 (query heads a KV head) and
    the layers are different primes, so that what is missing can be told by its factor."""
    configs = []
    for n_kv_heads, tied in ((2, False), (6, True), (1, bool(rng.integers(2)))):
        D = 2 * int(rng.integers(2, 7))
        C = 6 * D
        d_ff = C + 2 * int(rng.integers(3, 12)) + 1
        V = 2 * C + 2 * int(rng.integers(5, 30)) + 1
        L = int(rng.choice([5, 7]))
        config = GPTConfig(V, L, C, 6, n_kv_heads, d_ff, max_seq_len=64, tie_embeddings=tied)
        configs.append(config.to_dict())
    return configs


def draw_calls(rng: np.random.Generator) -> Calls:
    """One token at the start of a text; a chunk in the middle of one; a batch of single tokens."""
    T, P, B = (int(n) for n in rng.permutation([3, 5, 7]))
    return [(1, 0, 1, 4), (T, 0, 1, 4), (T, P, 1, 2), (1, P, B, 4), (T, P + 6, B, 2)]


def draw_bills(draw: DrawCalls) -> Callable[[int], Challenge]:
    """Every drawn call of every drawn model, the first model's first."""

    def challenge(seed: int) -> Challenge:
        rng = np.random.default_rng(seed)
        return {"configs": draw_configs(rng), "calls": draw(rng)}

    return challenge


def cases(challenge: Challenge) -> list[tuple[dict[str, Any], Call]]:
    """Each config with each call, smallest call first."""
    return [
        (config, Call(*sizes)) for sizes in challenge["calls"] for config in challenge["configs"]
    ]


def told(config: dict[str, Any], call: Call, function: str = "phase_cost") -> str:
    """The call as a student would write it, and the config's sizes in the letters of the course."""
    c = GPTConfig(**config)
    names = Call._fields if function == "phase_cost" else Call._fields[:3]
    given = ", ".join(f"{name}={getattr(call, name)}" for name in names)
    tied = ", tied" if c.tie_embeddings else ""
    return (
        f"{function}(config, {given}) of L={c.n_layers}, C={c.d_model}, H={c.n_heads}, "
        f"G={c.n_kv_heads}, D={c.head_dim}, f={c.d_ff}, V={c.vocab_size}{tied}"
    )


# --- attention -----------------------------------------------------------------------------------


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {
        "attention_flops": [
            plain(student.attention_flops(GPTConfig(**config), *call[:3]))
            for config, call in cases(challenge)
        ]
    }


def ask_about_attention(config: dict[str, Any], call: Call, got: float, right: int) -> str:
    """The question of a failure, by what the number looks like."""
    T, P = call.n_new, call.n_past
    if T == 1 and got == right / 2:
        return (
            "One number with another, per pair and head: a multiply-add is 2 FLOPs. And how often "
            "does each pair need one: for its score alone?"
        )
    if got < right and got * config["n_heads"] == right * config["n_kv_heads"]:
        return "How many heads ask: those with queries of their own, or those with keys?"
    if T > 1 and P == 0:
        return f"Which of the {T} new tokens may look at how many?"
    if (T, P) == (1, 0) and 0 < got < right:
        return "In how many layers and heads does this one token look at itself?"
    if P and T == 1:
        return f"At how many tokens does the new one look, {P} being cached?"
    return "How many pairs of a token that looks and a token that is looked at are there?"


def make_attention(truth: Truth, draw: DrawCalls = draw_calls) -> Check:
    """`attention_flops(config, n_new, n_past, batch)` for every kind of head and of chunk."""

    def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
        for (config, call), got in zip(cases(challenge), evidence["attention_flops"], strict=True):
            case, right = told(config, call, "attention_flops"), truth(config, call)
            wanted = right["attention_flops"]
            if isinstance(got, str):
                return failed(f"{case} gave {got}; wanted is one number. What do you return?")
            if got != wanted:
                question = ask_about_attention(config, call, got, wanted)
                return failed(f"{case} gave {got:,}; pair by pair it is {wanted:,}. {question}")
        return passed("Every pair that may look, in every head: a score, and a share of a value.")

    return Check(
        "attention_is_causal", ("attention_flops",), draw_bills(draw), probe_attention, verdict
    )


# --- the parts of a bill -------------------------------------------------------------------------


def read_cost(value: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    """Fields of what `phase_cost` returned, as plain numbers; "kind" says what it is if it has
    none of them."""
    if not all(hasattr(value, field) for field in fields):
        return {"kind": type(value).__name__}
    return {field: plain(getattr(value, field)) for field in fields}


def probe_bill(fields: tuple[str, ...]) -> Callable[[SimpleNamespace, Challenge], Evidence]:
    def probe(student: SimpleNamespace, challenge: Challenge) -> Evidence:
        bills = []
        for config, call in cases(challenge):
            bill = read_cost(student.phase_cost(GPTConfig(**config), *call), fields)
            if "flops" in bill:
                of_attention = plain(student.attention_flops(GPTConfig(**config), *call[:3]))
                bill["attention_flops"] = of_attention
            bills.append(bill)
        return {"bills": bills}

    return probe


def make_bill(
    name: str,
    fields: tuple[str, ...],
    truth: Truth,
    ask: Ask,
    praise: str,
    draw: DrawCalls,
    needs: tuple[str, ...] = ("phase_cost",),
) -> Check:
    """A check of some fields of the Cost that `phase_cost` returns."""

    def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
        for (config, call), bill in zip(cases(challenge), evidence["bills"], strict=True):
            case, right = told(config, call), truth(config, call)
            if "kind" in bill:
                return failed(
                    f"{case} gave a {bill['kind']}; wanted is a Cost. What do you return?"
                )
            for field, got in bill.items():
                if isinstance(got, str):
                    return failed(f"{case}: {field} is {got}; wanted is one number. Which one?")
            got = matrix_part(bill) if "flops" in fields else {f: bill[f] for f in fields}
            for field, value in got.items():
                if value != right[field]:
                    what = "flops without attention" if field == "matrix_flops" else field
                    return failed(
                        f"{case}: {what} is {value:,}; counted one by one it is "
                        f"{right[field]:,}. {ask(config, call, got, right)}"
                    )
        return passed(praise)

    return Check(name, needs, draw_bills(draw), probe_bill(fields), verdict)


def matrix_part(bill: dict[str, Any]) -> Bill:
    """The FLOPs of a bill without those of attention as the same student counts them, so that one
    mistake there costs one point and not two."""
    return {"matrix_flops": bill["flops"] - bill["attention_flops"]}


def ask_about_matrices(config: dict[str, Any], call: Call, got: Bill, right: Bill) -> str:
    got, wanted = got["matrix_flops"], right["matrix_flops"]
    rows, head = call.batch * call.n_new, 2 * config["d_model"] * config["vocab_size"]
    if 2 * got == wanted:
        return "How many operations is one multiply-add?"
    if got == wanted - call.batch * head:
        return "Which matrix stands after the last layer?"
    if got == wanted + (rows - call.batch) * head:
        return "Of how many tokens of each row are logits computed?"
    if got == wanted + rows * head:
        return "Is a row of the embedding table multiplied, or looked up?"
    if got == wanted + right["attention_flops"] or got == wanted - right["attention_flops"]:
        return "Is attention in your flops, and once?"
    if wanted - got == 2 * rows * config["n_layers"] * config["d_model"] * config["d_ff"]:
        return "How many matrices has the feed-forward part?"
    if got * rows == wanted or got * call.batch == wanted:
        return "How many rows go through each matrix?"
    if config["n_kv_heads"] < config["n_heads"]:
        return "Which of the seven matrices of a layer have G·D columns?"
    return "Seven matrices in each layer, one after the last: which shape has each of them?"


def ask_about_weights(config: dict[str, Any], call: Call, got: Bill, right: Bill) -> str:
    got, wanted, size = got["weight_bytes"], right["weight_bytes"], call.bytes_per_element
    table = config["d_model"] * config["vocab_size"] * size
    if got * size == wanted and size > 1:
        return "Are these bytes, or numbers?"
    if got == wanted + table:
        return "Is the whole embedding table read to look a few rows up?"
    if got == wanted - table:
        return "Which matrix do the logits need, wherever it is kept?"
    if got == wanted * call.n_new * call.batch and got != wanted:
        return "How often does a matrix leave memory in one forward pass?"
    if got == wanted * call.batch:
        return "The rows of a batch go through together. How often is a matrix read for them?"
    return "Seven matrices in each layer, one after the last. Which shape has each of them?"


def ask_about_the_cache(config: dict[str, Any], call: Call, got: Bill, right: Bill) -> str:
    written, wanted = got["kv_written_bytes"], right["kv_written_bytes"]
    read, to_read = got["kv_read_bytes"], right["kv_read_bytes"]
    share = config["n_heads"] // config["n_kv_heads"]
    one_token = call.n_new == 1
    if share > 1 and (written == share * wanted or (one_token and read == share * to_read)):
        return "Of which heads does a cache hold keys and values?"
    if written * call.bytes_per_element == wanted or read * call.bytes_per_element == to_read:
        return "Are these bytes, or numbers?"
    if written * 2 == wanted or read * 2 == to_read:
        return "What is kept for each token beside its key?"
    if call.batch > 1 and (written * call.batch == wanted or read * call.batch == to_read):
        return "Whose cache is it: has each row of the batch its own?"
    if written == wanted and read > to_read:
        return "How often is the cache read, for all new tokens of a row together?"
    if written == wanted:
        return "At which tokens does a new token look? At itself?"
    return "Which rows are new, and which are read, in every layer?"


def ask_about_activations(config: dict[str, Any], call: Call, got: Bill, right: Bill) -> str:
    got, wanted, size = got["activation_bytes"], right["activation_bytes"], call.bytes_per_element
    head_rows = config["d_model"] + config["vocab_size"]
    if got * size == wanted and size > 1:
        return "Are these bytes, or numbers?"
    if call.n_new > 1 and got == wanted + (call.n_new - 1) * call.batch * head_rows * size:
        return "How many tokens of each row does the last matrix see?"
    if got == wanted - call.batch * head_rows * size:
        return "What goes into the last matrix, and what comes out?"
    if call.n_new * call.batch > 1:
        return "One row was right. How many go through each matrix, and how many through the last?"
    return "Each of the matrices takes rows of one width and gives rows of another: which?"


def make_matrices(truth: Truth, draw: DrawCalls = draw_calls) -> Check:
    """`flops` without attention."""
    return make_bill(
        "matrices_match_the_counter",
        ("flops",),
        truth,
        ask_about_matrices,
        "Every matrix product is counted, as PyTorch counts it: with logits of the last token alone.",
        draw,
        needs=("phase_cost", "attention_flops"),
    )


def make_weights(truth: Truth, draw: DrawCalls = draw_calls) -> Check:
    """`weight_bytes`, whatever goes through."""
    return make_bill(
        "weights_are_read_once",
        ("weight_bytes",),
        truth,
        ask_about_weights,
        "Each matrix is read once a forward pass, for all tokens of all rows together.",
        draw,
    )


def make_cache(truth: Truth, draw: DrawCalls = draw_calls) -> Check:
    """`kv_written_bytes` and `kv_read_bytes`."""
    return make_bill(
        "cache_is_read_and_written",
        ("kv_written_bytes", "kv_read_bytes"),
        truth,
        ask_about_the_cache,
        "New rows are written; old and new ones are read, of G heads, for each row of the batch.",
        draw,
    )


def make_activations(truth: Truth, draw: DrawCalls = draw_calls) -> Check:
    """`activation_bytes`."""
    return make_bill(
        "activations_go_in_and_out",
        ("activation_bytes",),
        truth,
        ask_about_activations,
        "Rows go into every matrix and come out of it.",
        draw,
    )


attention_is_causal = make_attention(weigh)
matrices_match_the_counter = make_matrices(weigh)
weights_are_read_once = make_weights(weigh)
cache_is_read_and_written = make_cache(weigh)
activations_go_in_and_out = make_activations(weigh)
