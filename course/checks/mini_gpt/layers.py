"""Check the attention layer: how its parts are joined, and what it makes of positions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.drawing import build_model, draw_model
from course.checks.mini_gpt.outputs import OUTPUT, call, form_error, gap, moved
from course.checks.recorder import given
from course.checks.recording import Array

FEATURES = ("query", "key", "value")  # columns 0, 1, 2 of x feed that matrix and no other
Truth = Callable[[Challenge, int], Array]
"""Gives the output (B, T, C) of a layer for one of its cases, by number."""


# --- layers, and what came of them ---------------------------------------------------------------


def draw_one_layer(
    rng: np.random.Generator, B: int, T: int, H: int, G: int, dtype: str, first: int = 0
) -> Challenge:
    """Draw a layer with one case: rows of which the second differs from the first only at the end and
    any third equals the first; at positions 0, 1, 2 …, or at any that rise, from `first` on to the
    model's last."""
    C = int(rng.choice([24, 32, 40]))
    model = draw_model(rng, n_layers=1, d_model=C, n_heads=H, n_kv_heads=G, max_seq_len=128)
    x = rng.normal(size=(1, T, C)).repeat(B, axis=0)
    x[1:2, -1] = rng.normal(size=C)
    positions = np.arange(T)
    if first:
        positions = np.sort(rng.choice(np.arange(first, 128), size=T, replace=False))
        positions[-1] = 127
    return {**model, "cases": [(x.astype(dtype), positions)]}


def probe_layer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call attention_layer on each case, an (x, positions), of each layer, a model of one layer with
    the dtype of its x."""
    outputs = []
    for layer in challenge["layers"]:
        model = build_model(layer, student.attention_layer)
        for x, positions in layer["cases"]:
            attn = model.to(given(x).dtype).blocks[0].attn
            outputs.append(call(student.attention_layer, attn, given(x), given(positions)))
    return {"outputs": outputs}


def layers_form(challenge: Challenge) -> Evidence:
    return {"outputs": [OUTPUT for layer in challenge["layers"] for _ in layer["cases"]]}


def arrays_by_layer(
    challenge: Challenge, evidence: Evidence
) -> tuple[list[list[Array]], Verdict | None]:
    """List the outputs of each layer's cases; a verdict where one has another form than its x."""
    outputs, arrays = iter(evidence["outputs"]), []
    for layer in challenge["layers"]:
        config = layer["config"]
        name = f"attention_layer with {config['n_heads']} heads, {config['n_kv_heads']} KV heads"
        found = list(islice(outputs, len(layer["cases"])))
        for (x, positions), out in zip(layer["cases"], found, strict=True):
            case = f"{name}, x {x.shape} {x.dtype} at positions {brief(positions.tolist())}"
            if error := form_error(case, out, x.shape, str(x.dtype)):
                return arrays, failed(error)
        arrays.append([out["array"] for out in found])
    return arrays, None


def judge_layers(
    layers: list[Challenge], outputs: list[list[Array]], truth: Truth, tolerance: float
) -> Verdict | None:
    """Judge the numbers of all cases of several layers; None where all are right."""
    for layer, arrays in zip(layers, outputs, strict=True):
        for case, array in enumerate(arrays):
            if wrong := judge_numbers(layer, case, array, truth, tolerance):
                return wrong
    return None


def judge_numbers(
    layer: Challenge, case: int, output: Array, truth: Truth, tolerance: float
) -> Verdict | None:
    """Fail the first token whose output is another than the oracle's, or give None."""
    positions, config = layer["cases"][case][1], layer["config"]
    difference = np.abs(output - truth(layer, case)).max(axis=-1)  # (B, T)
    if difference.max() <= tolerance:
        return None
    t, b = np.argwhere((difference > tolerance).T)[0].tolist()
    question = (
        "A token alone attends to itself. Do the checks of heads and attention pass? If so, what happens "
        "to its value on the way in and out?"
        if t == 0
        else "Do the checks of attention pass? If so, of which matrices are a query and a key made, and "
        "what is done to them before they meet?"
    )
    if b > 0 and not (difference[0] > tolerance).any():
        question = "Row 0 agrees in every token. Which axis of your tensors holds the batch?"
    return failed(
        f"{config['n_heads']} heads, {config['n_kv_heads']} KV heads, positions "
        f"{brief(positions.tolist())}: token {t} of row {b} is the first that differs (max |Δ| "
        f"{difference[b, t]:.2g}, tolerance {tolerance:g}). {question}"
    )


def brief(numbers: list[int]) -> str:
    """Write a list, a long one by its ends."""
    if len(numbers) <= 10:
        return str(numbers)
    return f"[{', '.join(map(str, numbers[:3]))}, … {numbers[-1]}]"


# --- its parts -----------------------------------------------------------------------------------


def draw_layers(seed: int) -> Challenge:
    """Draw a layer and its cases: a token alone; five tokens; then, for each of query, key and value,
    and each token j, the same five with the number changed that feeds only that part of token j. Then
    draw layers with weights of their own, whose heads share 2, 4 and 1 KV heads: of three rows; of one
    token, and another; and of a long row, in float64."""
    rng = np.random.default_rng(seed)
    first = draw_model(rng, n_layers=1)
    for column, part in enumerate(("wq", "wk", "wv")):
        for other in {"wq", "wk", "wv"} - {part}:
            first["state"][f"blocks.0.attn.{other}.weight"][:, column] = 0
    T = 5
    x = rng.normal(size=(1, T, first["config"]["d_model"])).astype(np.float32)
    cases = [(x[:, :1], np.array([7])), (x, np.arange(T))]
    for column in range(len(FEATURES)):
        for j in range(T):
            other = x.copy()
            other[:, j, column] += 3
            cases.append((other, np.arange(T)))
    T, long = int(rng.integers(5, 10)), int(rng.integers(66, 76))
    sizes = ((3, T, 4, 2, "float32"), (1, 1, 4, 4, "float32"), (1, long, 2, 1, "float64"))
    others = [draw_one_layer(rng, *size) for size in sizes]
    (x, positions), *_ = others[1]["cases"]
    others[1]["cases"].append((-x, positions))
    return {"layers": [{**first, "cases": cases}, *others]}


@check("attention_layer", draw=draw_layers, probe=probe_layer, evidence=layers_form)
def layer_joins_its_parts(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge what a token alone gives, then which tokens use whose query, key and value, and then the
    numbers."""
    outputs, wrong = arrays_by_layer(challenge, evidence)
    if wrong:
        return wrong
    first, *later = challenge["layers"]
    alone, base, *others = outputs[0]
    if (difference := gap(alone, truth(first, 0))) > tolerance:
        return failed(
            "A token alone can only attend to itself, so its output is its value, sent through "
            f"wo. Yours differs (max |Δ| {difference:.2g}, tolerance {tolerance:g}; position 7). "
            "Which matrix makes the value, and what happens to it on its way in and out?"
        )
    if wrong := judge_features(base, others, tolerance):
        return wrong
    if wrong := judge_numbers(first, 1, base, truth, tolerance):
        return wrong
    if wrong := judge_layers(later, outputs[1:], truth, tolerance):
        return failed(f"Another layer, with weights of its own: {wrong.message}")
    return passed("A query serves its own token; a key and a value serve every later one too.")


def judge_features(base: Array, others: list[Array], tolerance: float) -> Verdict | None:
    """Judge which outputs another query, key or value of one token moved; None where it is right."""
    T = base.shape[1]
    for i, other in enumerate(others):
        part, j = FEATURES[i // T], i % T
        tokens = moved(base, other, 1, tolerance)
        expected = {
            "query": [j] if j else [],  # token 0 has only itself to look at
            "key": [t for t in range(j, T) if t],
            "value": list(range(j, T)),
        }[part]
        if tokens != expected:
            return failed(
                f"{T} tokens: another {part} for token {j} moved the outputs of tokens {tokens}; "
                f"expected {expected or 'none: it has only itself to look at'}. "
                f"Which tokens use the {part} of token {j}?"
            )
    return None


# --- positions -----------------------------------------------------------------------------------


def draw_positions(seed: int) -> Challenge:
    """Draw one layer and its cases: the usual positions, all later by 10, three times as far apart;
    the first three tokens; the first token at position 0, and at position 9; any rising positions. Then
    draw layers whose heads share 2 KV heads and 1, at rising positions."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng, n_layers=1)
    x = rng.normal(size=(2, 5, challenge["config"]["d_model"])).astype(np.float32)
    usual = np.arange(5)
    cases = [(x, usual), (x, usual + 10), (x, usual * 3), (x[:, :3], usual[:3])]
    cases += [(x[:, :1], np.array([0])), (x[:, :1], np.array([9]))]
    cases.append((x, np.sort(rng.choice(np.arange(3, 64), size=5, replace=False))))
    sizes = ((3, int(rng.integers(5, 10)), 4, 2, "float32"), (1, 4, 4, 1, "float32"))
    others = [draw_one_layer(rng, *size, first=3) for size in sizes]
    return {"layers": [{**challenge, "cases": cases}, *others]}


@check("attention_layer", draw=draw_positions, probe=probe_layer, evidence=layers_form)
def layer_obeys_positions(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge whether distances between tokens matter, and nothing else about their positions; then
    the numbers."""
    outputs, wrong = arrays_by_layer(challenge, evidence)
    if wrong:
        return wrong
    layer, *others = challenge["layers"]
    usual, later, apart, three, at_0, at_9, anywhere = outputs[0]
    if (difference := gap(at_0, at_9)) > tolerance:
        return failed(
            "The same token, alone, gives one output at position 0 and another at position 9 "
            f"(max |Δ| {difference:.2g}). Which of query, key and value says what a token carries, "
            "and which say where it is?"
        )
    if gap(usual, apart) < tolerance:
        return failed(
            "Positions 0 1 2 3 4 and 0 3 6 9 12 give the same output. "
            "Where does your layer use `positions`?"
        )
    if (difference := gap(usual, later)) > tolerance:
        return failed(
            f"All positions later by 10, the distances as before: the output moved (max |Δ| "
            f"{difference:.2g}, tolerance {tolerance:g}). A query meets a key at the angle between "
            "them: do both know where they are?"
        )
    if (difference := gap(usual[:, :3], three)) > tolerance:
        return failed(
            "The first 3 tokens alone give other outputs than the same 3 among 5 (max |Δ| "
            f"{difference:.2g}, tolerance {tolerance:g}). "
            "What in your layer depends on how many tokens follow?"
        )
    wrong = judge_numbers(layer, 6, anywhere, truth, tolerance)
    return (
        wrong
        or judge_layers(others, outputs[1:], truth, tolerance)
        or passed("Distances between tokens matter; where the text begins does not.")
    )
