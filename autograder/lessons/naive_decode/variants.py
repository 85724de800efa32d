"""Right answers to lesson 02 in other styles: every check must pass them."""

from fractions import Fraction
from functools import reduce

import numpy as np
import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Variant
from course.model.bounds import check_between


def check(model, prompt, n_new):
    """Refuse what cannot be done."""
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])


def into_a_buffer(model, prompt, n_new):
    check(model, prompt, n_new)
    B, P = prompt.shape
    tokens = prompt.new_zeros(B, P + n_new)
    tokens[:, :P] = prompt
    for n in range(P, P + n_new):
        tokens[:, n] = model(tokens[:, :n])[:, -1].argmax(dim=-1)
    return tokens


def rows_by_adding(p, g):
    return sum(p + step for step in range(g))


def needed_as_a_set(p, g):
    return len({position for step in range(g) for position in range(p + step)})


def row_by_row(model, prompt, n_new):
    if not isinstance(n_new, int) or n_new < 0:
        raise ValueError(f"n_new should be 0, 1, 2, …, not {n_new}")
    if not 1 <= prompt.shape[1] <= model.config.max_seq_len - n_new:
        raise ValueError(f"{n_new} tokens after {prompt.shape[1]} are none, or too many")
    rows = []
    for row in prompt.tolist():
        for _ in range(n_new):
            logits = model(torch.tensor([row], device=prompt.device))[0, -1]
            row = [*row, int(torch.softmax(logits.double(), dim=-1).argmax())]
        rows.append(row)
    return torch.tensor(rows, device=prompt.device)


def rows_as_float(p, g):
    return g * (p + (p + g - 1)) / 2


def needed_at_the_end(p, g):
    return (p + g - 1) * bool(g)


def by_recursion(model, prompt, n_new):
    check(model, prompt, n_new)
    if n_new == 0:
        return prompt.clone()
    with torch.inference_mode():
        new = model(prompt)[:, -1:].topk(1).indices.squeeze(-1)  # (B, 1)
    return by_recursion(model, torch.cat((prompt, new), -1), n_new - 1)


def in_numpy(model, prompt, n_new):
    check(model, prompt, n_new)
    text = np.array(prompt.tolist())
    for _ in range(n_new):
        logits = model(torch.from_numpy(text))[:, -1].numpy()
        text = np.concatenate([text, logits.argmax(axis=-1)[:, None]], axis=1)
    return torch.from_numpy(text)


def by_columns(model, prompt, n_new):
    check(model, prompt, n_new)
    columns = list(prompt.unbind(dim=1))  # P of (B,)
    for _ in range(n_new):
        scores = model(torch.stack(columns, dim=1))[:, -1]
        columns.append(torch.log_softmax(scores.double(), dim=-1).max(dim=-1).indices)
    return torch.stack(columns, dim=1)


def by_reducing(model, prompt, n_new):
    check(model, prompt, n_new)

    def longer(text, _):
        return torch.hstack([text, model(text)[:, [-1]].argmax(dim=-1)])

    return reduce(longer, range(n_new), prompt.clone())


def part_by_part(model, prompt, n_new):
    """Without calling the model or its embedding."""
    check(model, prompt, n_new)
    for _ in range(n_new):
        x = F.embedding(prompt, model.embed.weight)
        for block in model.blocks:
            positions = torch.arange(prompt.shape[1])
            x = x + model.attention_layer(block.attn, block.attn_norm(x), positions)
            x = x + block.mlp(block.mlp_norm(x))
        logits = F.linear(model.norm(x[:, -1:]), model.lm_head.weight)
        prompt = torch.cat([prompt, logits.argmax(dim=-1)], dim=1)
    return prompt.clone()


def rows_by_numpy(p, g):
    return np.arange(p, p + g).sum()


def needed_as_a_maximum(p, g):
    return max((p + step for step in range(g)), default=0)


def rows_as_a_fraction(p, g):
    return Fraction(g, 2) * (2 * p + g - 1)


VARIANTS = [
    Variant(
        "buffer_and_sums",
        {
            "generate_naive": into_a_buffer,
            "kv_rows_naive": rows_by_adding,
            "kv_rows_needed": needed_as_a_set,
            "attention_visits": rows_by_adding,
        },
    ),
    Variant(
        "row_by_row_and_floats",
        {
            "generate_naive": row_by_row,
            "kv_rows_naive": rows_as_float,
            "kv_rows_needed": needed_at_the_end,
            "attention_visits": rows_as_float,
        },
    ),
    Variant("recursion", {"generate_naive": by_recursion}),
    Variant("numpy", {"generate_naive": in_numpy, "kv_rows_naive": rows_by_numpy}),
    Variant("columns", {"generate_naive": by_columns, "kv_rows_needed": needed_as_a_maximum}),
    Variant("part_by_part", {"generate_naive": part_by_part}),
    Variant("reduced", {"generate_naive": by_reducing, "attention_visits": rows_as_a_fraction}),
]
