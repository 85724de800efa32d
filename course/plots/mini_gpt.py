"""Draw lesson 01's pictures: heads, weights, angles, what moves when a word changes, and draws.

Nothing here computes attention: the pictures call the functions that the student wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from course.model import AttentionLayer, MiniGPT
from course.model.layers import Attention
from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, Picture, course_style
from course.world.tokenizer import WORDS, decode, encode

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
WHITE_TO_BLUE = LinearSegmentedColormap.from_list("white_to_blue", ["white", BLUE])
WHITE_TO_ORANGE = LinearSegmentedColormap.from_list("white_to_orange", ["#FCF3E0", VERMILION])
UNMOVED = 1e-6
"""Largest relative change that counts as none; float32 rounding is ten times smaller."""


def words_of(tokens: Tensor) -> list[str]:
    """Decode one row of tokens, (1, T), word by word."""
    return decode(tokens).split()


# Heads


def draw_heads(n_tokens: int = 3, n_heads: int = 4, head_dim: int = 3) -> Picture:
    """Draw how each token's row of numbers is cut into heads."""
    colours = [BLUE, ORANGE, GREEN, PURPLE, VERMILION, GREY]
    with course_style():
        widths = [n_heads * head_dim + 0.2, n_heads * (head_dim + 0.6) + 0.2]
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 1.9), width_ratios=widths)
        for h in range(n_heads):
            colour = colours[h % len(colours)]
            _draw_block(left, h * head_dim, 0, n_tokens, head_dim, colour)
            _draw_block(right, h * (head_dim + 0.6), 0, n_tokens, head_dim, colour)
            right.text(h * (head_dim + 0.6) + head_dim / 2, -0.35, f"head {h}", ha="center")
        left.set_title("x: (T, H · D), one row a token")
        right.set_title("heads: (H, T, D)")
        for axes, width in zip((left, right), widths, strict=True):
            axes.set(xlim=(-0.2, width - 0.2), ylim=(n_tokens + 0.2, -0.9), aspect="equal")
            axes.set_yticks(np.arange(n_tokens) + 0.5, [f"token {t}" for t in range(n_tokens)])
            axes.set_xticks([])
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
        right.set_yticks([])
    alt = (
        f"Left, {n_tokens} rows of {n_heads * head_dim} cells, one row a token; every {head_dim} "
        f"neighbouring columns have one colour. Right, {n_heads} small grids of {n_tokens} rows and "
        f"{head_dim} columns, one in each colour: the cells of that colour on the left."
    )
    caption = (
        "A head is a slice of columns. It keeps every token, and sees only its own part of each."
    )
    return Picture(figure, alt, caption)


def _draw_block(axes: Axes, x: float, y: float, rows: int, columns: int, colour: str) -> None:
    """Draw a grid of cells with its upper left corner at (x, y)."""
    for row in range(rows):
        for column in range(columns):
            axes.add_patch(
                Rectangle((x + column, y + row), 0.94, 0.94, facecolor=colour, alpha=0.55)
            )


# Attention weights


def attention_weights(model: MiniGPT, tokens: Tensor, causal_attention: Attend) -> list[Tensor]:
    """Compute the weights with which each layer's heads average, (H, T, T) a layer.

    They come from the student's function: where the values are the columns of an identity matrix, the
    averages are the weights.
    """
    weights = []
    for q, k in _queries_and_keys(model, tokens):
        T, D = q.shape[-2:]
        columns = torch.eye(T).split(D, dim=1)  # (T, ≤ D) each
        parts = []
        for part in columns:
            v = torch.zeros(k.shape)
            v[..., : part.shape[1]] = part
            parts.append(causal_attention(q, k, v)[0, ..., : part.shape[1]])
        weights.append(torch.cat(parts, dim=-1))
    return weights


def _queries_and_keys(model: MiniGPT, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Run the model and keep each layer's rotated queries and keys, as `attn.rotate` returned them."""
    found = []

    def recording(attn: Attention, x: Tensor, positions: Tensor) -> Tensor:
        rotated = []

        def rotate(heads: Tensor, positions: Tensor) -> Tensor:
            rotated.append(Attention.rotate(attn, heads, positions))
            return rotated[-1]

        attn.rotate = rotate
        try:
            out = layer(attn, x, positions)
        finally:
            del attn.rotate
        if len(rotated) != 2:
            raise ValueError(
                f"this attention layer calls attn.rotate {len(rotated)} times; the picture needs "
                "one call for the queries and one for the keys"
            )
        # A rotation keeps lengths, so the queries are those that are as long as wq made them.
        length = attn.wq(x).norm()
        found.append(tuple(sorted(rotated, key=lambda heads: (heads.norm() - length).abs())))
        return out

    layer = model.attention_layer
    with using(model, recording):
        model(tokens)
    return found


@contextmanager
def using(model: MiniGPT, attention_layer: AttentionLayer) -> Iterator[None]:
    """Run the model with another attention layer inside the `with` block."""
    before = model.attention_layer
    model.attention_layer = attention_layer
    try:
        yield
    finally:
        model.attention_layer = before


def draw_attention(
    model: MiniGPT, text: str, causal_attention: Attend, looks: Sequence[tuple[int, int, str]]
) -> Picture:
    """Draw the attention weights of some heads on a text.

    Args:
        looks: block, head and a word, whose last row is framed.
    """
    tokens = encode(text)
    words = words_of(tokens)
    weights = attention_weights(model, tokens, causal_attention)
    T = len(words)
    told = []
    with course_style():
        figure, grid = plt.subplots(1, len(looks), figsize=(4.4 * len(looks), 4.4), squeeze=False)
        for (block, head, word), axes in zip(looks, grid.flat, strict=True):
            shown = weights[block][head].numpy()  # (T, T)
            image = axes.imshow(shown, cmap=WHITE_TO_BLUE, vmin=0, vmax=1)
            t = T - 1 - words[::-1].index(word)
            s = int(shown[t].argmax())
            axes.add_patch(
                Rectangle((-0.5, t - 0.5), t + 1, 1, fill=False, edgecolor=VERMILION, linewidth=1.5)
            )
            axes.set_title(f"block {block}, head {head}")
            axes.set_xticks(range(T), words, rotation=90)
            axes.set_yticks(range(T), words)
            axes.get_yticklabels()[t].set(color=VERMILION, weight="bold")
            axes.get_xticklabels()[s].set(color=VERMILION, weight="bold")
            axes.set(xlabel="looked at", ylabel="token that looks")
            axes.spines[["top", "right"]].set_visible(True)
            told.append(
                f"in block {block}, head {head}, {word!r} (token {t}) looks at {words[s]!r} "
                f"(token {s}) with weight {shown[t, s]:.2f}"
            )
        figure.colorbar(image, ax=grid, shrink=0.5, label="weight")
    alt = (
        f"{len(looks)} square heat maps for {text!r}. Rows look at columns; all above the diagonal is "
        f"white. Framed rows: {'; '.join(told)}."
    )
    caption = (
        "Each row adds up to 1. White above the diagonal: nobody looks ahead. Framed: "
        f"{'; '.join(told)}."
    )
    return Picture(figure, alt, caption)


# From an average to softmax


def draw_weights(words: Sequence[str], matrices: Mapping[str, Tensor]) -> Picture:
    """Draw matrices (T, T) with their numbers side by side, each under its name."""
    T = len(words)
    with course_style():
        figure, panels = plt.subplots(1, len(matrices), figsize=(2.4 * len(matrices), 2.7))
        for axes, (name, matrix) in zip(panels, matrices.items(), strict=True):
            axes.imshow(matrix.numpy(), cmap=WHITE_TO_BLUE, vmin=0, vmax=1)
            for (t, s), weight in np.ndenumerate(matrix.numpy()):
                color = "white" if weight > 0.6 else "black"
                number = f"{weight:.0f}" if weight in (0, 1) else f"{weight:.2f}"
                axes.text(s, t, number, ha="center", va="center", color=color)
            axes.set_title(name, fontsize=10)
            axes.set_xticks(range(T), words)
            axes.set_yticks(range(T), words if axes is panels[0] else [""] * T)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(True)
        panels[0].set(ylabel="token that looks", xlabel="looked at")
    last = "; ".join(
        f"{name}: {', '.join(f'{weight:.2f}' for weight in matrix[-1].tolist())}"
        for name, matrix in matrices.items()
    )
    alt = (
        f"{len(matrices)} grids of {T} × {T} numbers, all 0 above the diagonal. Their last rows, "
        f"{words[-1]!r}: {last}."
    )
    caption = (
        "Rows look, columns are looked at. The first matrix says who sees whom; in the others each "
        "row adds up to 1. On the right, large scores: nearly all the weight is on one word."
    )
    return Picture(figure, alt, caption)


# Rotation


def draw_angles(angles: Callable[[int], Tensor], places: Sequence[tuple[int, int]]) -> Picture:
    """Draw the angles (D/2,) by which the pairs of a query and of a key are turned, as hands of clocks,
    one row for each (query's position, key's position)."""
    n_pairs = len(angles(0))
    with course_style():
        figure, grid = plt.subplots(
            len(places), n_pairs, figsize=(1.15 * n_pairs, 1.5 * len(places)), squeeze=False
        )
        for clocks, (m, n) in zip(grid, places, strict=True):
            for pair, axes in enumerate(clocks):
                axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=GREY, linewidth=0.8))
                hands = {"key": (n, ORANGE, 4), "query": (m, BLUE, 2)}
                for name, (position, color, width) in hands.items():
                    angle = float(angles(position)[pair])
                    x, y = [0, np.cos(angle)], [0, np.sin(angle)]
                    axes.plot(x, y, color=color, linewidth=width, label=name)
                between = float(angles(m)[pair] - angles(n)[pair])
                axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
                axes.set(xticks=[], yticks=[], xlabel=f"{between:.2g}")
                axes.spines[:].set_visible(False)
            clocks[0].set_ylabel(f"query at {m}\nkey at {n}", rotation=0, ha="right", va="center")
        for pair, axes in enumerate(grid[0]):
            axes.set_title(f"pair {pair}", loc="center", fontsize=9)
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    rows = " and ".join(f"a query at {m} and a key at {n}" for m, n in places)
    between = ", ".join(f"{float(a):.2g}" for a in angles(places[0][0]) - angles(places[0][1]))
    alt = (
        f"{len(places)} rows of {n_pairs} clocks, one for each pair of numbers, for {rows}. Each has a "
        f"blue hand for the query and an orange one for the key. The hands stand elsewhere in each "
        f"row; the angles between them in the first row, in radians: {between}."
    )
    caption = (
        "The hands show how far each pair of the query (blue) and of the key (orange) was turned; "
        "below each clock, the angle between them in radians. Equal distances, equal angles: the "
        "product is the same, wherever the two stand. Pair 0 tells neighbours apart; the last pairs "
        "change only over long distances."
    )
    return Picture(figure, alt, caption)


# The causality map


def hidden_states(model: MiniGPT, tokens: Tensor) -> Tensor:
    """Compute the vector of each token (1, T) before the first block and after each, (L + 1, T, C)."""
    states: list[Tensor] = []
    listeners = [
        module.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0][0].clone()))
        for module in (*(block.attn_norm for block in model.blocks), model.norm)
    ]
    try:
        model(tokens)
    finally:
        for listener in listeners:
            listener.remove()
    return torch.stack(states)


def without_mask(attention_layer: AttentionLayer) -> AttentionLayer:
    """Make the same layer without its mask: each token asks once as if it stood last in the row.

    Only the order of the rows changes; every token keeps its position.
    """

    def layer(attn: Attention, x: Tensor, positions: Tensor) -> Tensor:
        T = x.shape[1]
        outputs = []
        for t in range(T):
            order = [*(other for other in range(T) if other != t), t]
            outputs.append(attention_layer(attn, x[:, order], positions[order])[:, -1])
        return torch.stack(outputs, dim=1)  # (B, T, C)

    return layer


def movement(model: MiniGPT, tokens: Tensor, j: int, word: str) -> np.ndarray:
    """Compute how far each hidden state moves when token j becomes `word`, relative to its length,
    (L + 1, T)."""
    other = tokens.clone()
    other[0, j] = encode(word)[0, 0]
    before, after = hidden_states(model, tokens), hidden_states(model, other)
    return ((after - before).norm(dim=-1) / before.norm(dim=-1)).numpy()


def draw_causality(model: MiniGPT, text: str, j: int, word: str) -> Picture:
    """Draw which hidden states move when token j becomes `word`: with the mask, and without it."""
    tokens = encode(text)
    words = words_of(tokens)
    if not 0 <= j < len(words):
        raise ValueError(f"j must be a token of the text, 0 … {len(words) - 1}, got {j}")
    masked = movement(model, tokens, j, word)
    with using(model, without_mask(model.attention_layer)):
        unmasked = movement(model, tokens, j, word)
    with course_style():
        figure, panels = plt.subplots(2, 1, figsize=(9.4, 4.6))
        _draw_movement(panels[0], masked, words, j, word, "your attention layer")
        _draw_movement(panels[1], unmasked, words, j, word, "the same layer without the mask")
    left, lost = (int((moved[:, :j] > UNMOVED).sum()) for moved in (masked, unmasked))
    alt = (
        f"Two grids of {len(masked)} rows (the embedding, then each block) and {len(words)} columns "
        f"(the words of {text!r}); token {j} becomes {word!r}. Cells left of it that moved: {left} "
        f"with the mask, {lost} without."
    )
    caption = (
        f"{words[j]!r} (token {j}) becomes {word!r}. A number says how far a hidden state moved, as "
        f"a part of its length; grey did not move. Left of token {j} moved: {left} cells with the "
        f"mask, {lost} without."
    )
    return Picture(figure, alt, caption)


def _draw_movement(
    axes: Axes, moved: np.ndarray, words: list[str], j: int, word: str, title: str
) -> None:
    """Draw a grid of tokens by depth, coloured and labelled by how far each state moved."""
    coloured = np.ma.masked_less_equal(moved, UNMOVED)
    colours = WHITE_TO_ORANGE.with_extremes(bad="#E4E4E4")
    axes.imshow(coloured, cmap=colours, norm=LogNorm(0.01, 3), aspect="auto")
    for (layer, t), size in np.ndenumerate(moved):
        dark = size > 0.5
        axes.text(
            t,
            layer,
            "0" if size <= UNMOVED else f"{size:.2f}" if size >= 0.005 else "<.01",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if dark else "black",
        )
    axes.axvline(j - 0.5, color=BLUE, linewidth=2)
    names = [f"{w}→{word}" if t == j else w for t, w in enumerate(words)]
    axes.set_xticks(range(len(words)), names)
    axes.get_xticklabels()[j].set(color=BLUE, weight="bold")
    blocks = [f"after block {i}" for i in range(len(moved) - 1)]
    axes.set_yticks(range(len(moved)), ["embedding", *blocks])
    axes.set_title(title)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


# Draws


def draw_next_words(
    logits: Tensor,
    sample_next: Callable[..., Tensor],
    temperature: float,
    top_k: int | None,
    n_draws: int = 2_000,
    n_shown: int = 10,
) -> Picture:
    """Draw bars of how often `sample_next` draws each word from logits (1, V)."""
    rows = logits.expand(n_draws, -1)  # (n_draws, V)
    generator = torch.Generator().manual_seed(0)
    tokens = sample_next(rows, temperature=temperature, top_k=top_k, generator=generator)
    drawn = np.bincount(tokens.numpy(), minlength=logits.shape[1]) / n_draws
    ranked = logits[0].argsort(descending=True).tolist()
    shown, rest = ranked[:n_shown], ranked[n_shown:]
    names = [WORDS[token] for token in shown] + [f"{len(rest)} others"]
    shares = [*drawn[shown], drawn[rest].sum()]
    with course_style():
        figure, axes = plt.subplots(figsize=(8, 2.9))
        bars = axes.bar(names, shares, color=[BLUE] * len(shown) + [GREY])
        axes.bar_label(bars, [f"{share:.0%}" if share else "" for share in shares], fontsize=8)
        axes.set(ylim=(0, 1.08), ylabel="part of the draws")
        axes.tick_params(axis="x", rotation=30)
        kept = "all words" if top_k is None else f"top_k {top_k}"
        axes.set_title(f"{n_draws:,} draws at temperature {temperature:g}, {kept}")
    told = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, shares, strict=True))
    alt = f"Bars of how often each word was drawn at temperature {temperature:g}: {told}."
    caption = (
        "Words from the likeliest on the left to the least likely. A low temperature sharpens, a "
        "high one flattens, and top_k cuts off the right."
    )
    return Picture(figure, alt, caption)
