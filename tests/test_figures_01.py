"""Lesson 01 does what its text and its pictures say, with the answers exported from it."""

import ast
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import bugs_of
from course.minigpt import start
from course.minigpt.mini_gpt import (
    attention_layer,
    causal_attention,
    greedy_next,
    merge_heads,
    sample_next,
    split_heads,
)
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.plots import mini_gpt as plots
from course.widgets import mini_gpt as widgets
from course.world.tokenizer import VOCAB_SIZE, decode, encode
from lessons import COURSE

SENTENCE = "The cat sat on the mat . It was a cold"


@pytest.fixture(scope="module")
def mini() -> MiniGPT:
    return MiniGPT.from_weights("mini", attention_layer=attention_layer)


def continued(model: MiniGPT, text: str, n_words: int) -> str:
    tokens = encode(text)
    for _ in range(n_words):
        tokens = torch.cat([tokens, greedy_next(model(tokens)[:, -1])[:, None]], dim=1)
    return decode(tokens)


def test_the_cat_sat_is_continued_by_on_the_mat(mini):
    assert continued(mini, "The cat sat", 4) == "The cat sat on the mat ."


def test_without_attention_a_word_is_chosen_by_the_one_before_it_and_it_goes_in_circles():
    lonely = MiniGPT.from_weights("mini", lambda attn, x, positions: torch.zeros_like(x))
    words = continued(lonely, "The cat sat", 10).split()[2:]
    follows = dict(itertools.pairwise(words))
    assert all(follows[word] == after for word, after in itertools.pairwise(words))
    assert len(follows) < len(words) - 1


def test_the_sizes_in_the_table_are_those_of_mini(mini):
    config = mini.config
    assert (VOCAB_SIZE, config.vocab_size) == (243, 243)
    assert (config.d_model, config.n_heads, config.n_kv_heads, config.head_dim) == (64, 4, 4, 16)
    assert encode("The cat sat").shape == (1, 3)


def test_the_second_mia_finds_her_surname_where_it_was_said(mini):
    story = "Mia Wood came in from the rain with a red key . Mia"
    assert continued(mini, story, 1).endswith(" Mia Wood")
    looks = plots.attention_weights(mini, encode(story), causal_attention)[1][:, -1]  # (H, T)
    assert looks[:, 1].max() > 0.5  # "Wood" is token 1
    assert torch.allclose(looks.sum(-1), torch.ones(4), atol=1e-5)


STORY = "Mia Wood came in from the rain with a red key . Mia"


def test_wood_looks_back_at_mia_in_block_0_and_the_second_mia_at_wood_in_block_1(mini):
    picture = plots.draw_attention(
        mini, STORY, causal_attention, looks=[(0, 1, "Wood"), (1, 1, "Mia")]
    )
    assert "head 1, 'Wood' (token 1) looks at 'Mia' (token 0) with weight 1.00" in picture.caption
    assert "head 1, 'Mia' (token 12) looks at 'Wood' (token 1) with weight 0.94" in picture.caption
    plt.close(picture.figure)


@pytest.mark.parametrize(("hidden", "chance"), [(False, 99), (True, 19)])
def test_wood_is_found_only_where_it_could_look_back_at_mia(mini, hidden, chance):
    def without_the_look(attn, x, positions):
        """Block 0's attention layer, in which Wood (token 1) does not see Mia (token 0)."""
        if not hidden or attn is not mini.blocks[0].attn:
            return attention_layer(attn, x, positions)
        out = attention_layer(attn, x, positions)
        out[:, 1:2] = attention_layer(attn, x[:, 1:2], positions[1:2])
        return out

    with plots.using(mini, without_the_look):
        probabilities = mini(encode(STORY))[0, -1].softmax(-1)
    assert round(100 * float(probabilities[encode("Wood")[0, 0]])) == chance


def test_two_people_are_told_apart(mini):
    together = "Mia Wood and Ben Hill came in from the rain with a red key ."
    assert continued(mini, f"{together} Mia", 1).endswith(" Wood")
    assert continued(mini, f"{together} Ben", 1).endswith(" Hill")


@pytest.fixture(scope="module")
def shown() -> dict:
    """The functions that the lesson shows before it asks for any."""
    cells = COURSE.read("01-mini-gpt").cells
    nodes = [node for c in cells if c.kind == "code" for node in ast.parse(c.source).body]
    names = {"norm", "swiglu", "angles", "turned"}
    chosen = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name in names]
    space = {"torch": torch, "Tensor": torch.Tensor, "silu": torch.nn.functional.silu}
    space["rms_norm"] = start.rms_norm
    exec(compile(ast.Module(chosen, []), "lesson 01", "exec"), space)
    return {name: space[name] for name in names}


def test_the_norm_and_the_mlp_that_are_shown_are_the_model_s(mini, shown):
    x = torch.randn((2, 5, 64), generator=torch.Generator().manual_seed(0))
    for block in mini.blocks:
        normed = shown["norm"](x, block.attn_norm.weight)
        assert torch.allclose(normed, block.attn_norm(x), atol=1e-5)
        assert torch.allclose(shown["swiglu"](x, block.mlp), block.mlp(x), atol=1e-4)


def test_the_rotation_that_is_shown_is_the_model_s(mini, shown):
    x = torch.randn((1, 4, 7, 16), generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 1, 2, 5, 23, 25, 1000])
    rotated = mini.blocks[0].attn.rotate(x, positions)  # (1, H, T, D)
    for t, position in enumerate(positions.tolist()):
        ours = torch.stack([shown["turned"](head, position) for head in x[0, :, t]])
        assert torch.allclose(ours, rotated[0, :, t], atol=1e-3)
    angles = shown["angles"]
    assert len(angles(1)) == 8
    picture = plots.draw_angles(angles, [(5, 3), (25, 23)])
    below = [axes.get_xlabel() for axes in picture.figure.axes]
    assert below[:8] == below[8:]  # equal distances, equal angles between the hands
    assert [float(angle) for angle in below[:2]] == [2, 0.63]
    plt.close(picture.figure)


@pytest.mark.parametrize("word", widgets.NEW_WORDS)
def test_left_of_a_changed_word_nothing_moves_and_from_it_on_everything_does(mini, word):
    tokens = encode(SENTENCE)
    for j in range(tokens.shape[1]):
        moved = plots.movement(mini, tokens, j, word) > plots.UNMOVED  # (L + 1, T)
        same = encode(word)[0, 0] == tokens[0, j]
        assert not moved[:, :j].any()
        assert moved[1:, j:].all() == (not same)
        assert moved[0].sum() == (0 if same else 1)


def test_without_the_mask_the_past_moves_too(mini):
    before = mini.attention_layer
    with plots.using(mini, plots.without_mask(before)):
        moved = plots.movement(mini, encode(SENTENCE), 5, "dog")
    assert (moved[1:] > plots.UNMOVED).all()
    assert mini.attention_layer is before


def small_model(layer=attention_layer, n_kv_heads: int = 2) -> MiniGPT:
    sizes = {"vocab_size": VOCAB_SIZE, "n_layers": 2, "d_model": 32, "n_heads": 4, "d_ff": 48}
    model = MiniGPT(GPTConfig(n_kv_heads=n_kv_heads, **sizes), attention_layer=layer)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3, generator=generator)
    return model


def layer_of(bug: str):
    """The attention layer of a notebook with that bug."""
    (answer,) = [exhibit.answer for exhibit in bugs_of("mini_gpt") if exhibit.name == bug]
    return assemble("mini_gpt", answer)["attention_layer"]


def test_a_layer_without_mask_is_what_a_layer_without_mask_computes():
    model = small_model()
    attn = model.blocks[0].attn
    x = torch.randn((1, 6, 32), generator=torch.Generator().manual_seed(1))
    positions = torch.tensor([2, 3, 5, 6, 7, 11])
    ours = plots.without_mask(attention_layer)(attn, x, positions)
    assert torch.allclose(ours, layer_of("no_mask")(attn, x, positions), atol=1e-4)
    assert not torch.allclose(ours, attention_layer(attn, x, positions), atol=1e-1)


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_the_weights_shown_are_those_with_which_the_layer_averages(n_kv_heads):
    model, tokens = small_model(n_kv_heads=n_kv_heads), encode(SENTENCE)
    weights = plots.attention_weights(model, tokens, causal_attention)[0]  # (H, T, T)
    x = model.blocks[0].attn_norm(model.embed(tokens))
    attn = model.blocks[0].attn
    v = attn.wv(x).view(tokens.shape[1], n_kv_heads, 8).repeat_interleave(4 // n_kv_heads, dim=1)
    heads = torch.einsum("hts,shd->thd", weights, v).flatten(1)
    expected = attention_layer(attn, x, torch.arange(tokens.shape[1]))[0]
    assert torch.allclose(attn.wo(heads), expected, atol=1e-4)


def test_the_weights_are_found_too_where_keys_are_turned_first():
    tokens = encode(SENTENCE)
    usual = plots.attention_weights(small_model(n_kv_heads=4), tokens, causal_attention)
    other = small_model(keys_first, n_kv_heads=4)
    found = plots.attention_weights(other, tokens, causal_attention)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(usual, found, strict=True))
    other.attention_layer = layer_of("nothing_turned")
    with pytest.raises(ValueError, match=r"calls attn\.rotate 0 times"):
        plots.attention_weights(other, tokens, causal_attention)


def keys_first(attn, x, positions):
    k = attn.rotate(split_heads(attn.wk(x), attn.n_kv_heads), positions)
    q = attn.rotate(split_heads(attn.wq(x), attn.n_heads), positions)
    v = split_heads(attn.wv(x), attn.n_kv_heads)
    return attn.wo(merge_heads(causal_attention(q, k, v)))


def test_the_causality_map_says_in_words_what_it_shows(mini):
    picture = plots.draw_causality(mini, SENTENCE, 5, "dog")
    assert "'mat' (token 5) becomes 'dog'" in picture.caption
    assert "Left of token 5 moved: 0 cells with the mask, 10 without" in picture.caption
    same = plots.draw_causality(mini, SENTENCE, 4, "the")
    assert "0 cells with the mask, 0 without" in same.caption
    with pytest.raises(ValueError, match="0 … 10, got 11"):
        plots.draw_causality(mini, SENTENCE, 11, "dog")


def test_the_bars_show_draws_of_the_function_that_is_given(mini):
    logits = mini(encode("The cat sat on the"))[:, -1]
    heights = {}
    for top_k in (None, 1):
        picture = plots.draw_next_words(logits, sample_next, temperature=3.0, top_k=top_k)
        heights[top_k] = np.array([bar.get_height() for bar in picture.figure.axes[0].patches])
        assert heights[top_k].sum() == pytest.approx(1)
    assert heights[1][0] == 1
    assert heights[None][0] < 0.9


def ends(control) -> list:
    """The values at the two ends of a control."""
    values = (control.min, control.max) if hasattr(control, "min") else control.options
    return [values[0], values[-1]]


def test_the_widgets_draw_at_the_ends_of_all_their_controls(mini, monkeypatch):
    shown = []
    monkeypatch.setattr(
        widgets, "playground", lambda draw, **controls: shown.append((draw, controls))
    )
    widgets.play_with_causality(mini, SENTENCE)
    widgets.play_with_sampling(mini, sample_next, ["The cat sat", "The cat"])
    for draw, controls in shown:
        captions = set()
        for values in itertools.product(*(ends(control) for control in controls.values())):
            picture = draw(**dict(zip(controls, values, strict=True)))
            captions.add(picture.alt)
            plt.close(picture.figure)
        assert len(captions) > len(controls)  # the controls do something
