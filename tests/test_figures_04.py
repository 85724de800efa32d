"""What lesson 04 says of its model's runs and shapes; the builder computes the figures in its prose."""

import matplotlib.pyplot as plt
import pytest
import torch

from course.checks.prefill_and_decode.chunks import count_passes
from course.minigpt import prefill_and_decode as lesson
from course.minigpt.kv_cache import KVCache, forward_cached, generate_cached
from course.minigpt.prefill_and_decode import (
    forward_ragged,
    pad_prompts,
    prefill,
    ragged_mask,
    ragged_positions,
    stream,
)
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.plots import prefill_and_decode as plots
from course.plots.prefill_and_decode import Shared, phase_shapes
from course.widgets.prefill_and_decode import AROUND, share
from course.world.stories import tell
from course.world.tokenizer import PAD, decode, encode

GIANT = GPTConfig(128_256, 80, 8192, 64, 8, 28_672, max_seq_len=131_072)  # 70B


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def story():
    return MiniGPT.from_weights("story")


@pytest.fixture(scope="module")
def prompt():
    return torch.cat([encode(tell(seed).text) for seed in (7, 8)], dim=1)[:, :500]


class Watched(KVCache):
    """A cache that notes the shapes of the keys that it gives back."""

    def append(self, layer, k, v):
        k, v = super().append(layer, k, v)
        self.seen = tuple(k.shape)
        return k, v


@pytest.mark.parametrize(("n_new", "n_past"), [(12, 0), (1, 15), (4, 8)])
def test_the_shapes_that_are_drawn_are_those_of_the_model(story, prompt, n_new, n_past):
    cache, block, seen = Watched(story.config, batch=1, max_len=20), story.blocks[0], {}
    if n_past:
        forward_cached(story, prompt[:, :n_past], cache)
    hooks = [
        block.attn.wq.register_forward_hook(lambda *call: seen.update(q=tuple(call[2].shape))),
        block.mlp.gate.register_forward_hook(lambda *call: seen.update(mlp=tuple(call[2].shape))),
    ]
    forward_cached(story, prompt[:, n_past : n_past + n_new], cache)
    for hook in hooks:
        hook.remove()
    drawn = phase_shapes(story.config, n_new, n_past)
    B, H, T, D = drawn["queries"]
    assert seen == {"q": (B, T, H * D), "mlp": drawn["mlp"]}
    assert cache.seen == drawn["keys"]
    assert drawn["scores"] == (B, H, T, cache.seen[2])


def test_the_scores_of_a_decode_step_are_n_past_plus_1_wide(story):
    assert phase_shapes(story.config, 1, 15)["scores"][-1] == 15 + 1


def test_the_first_token_belongs_to_prefill(story, prompt):
    with count_passes(story) as passes:
        tokens = stream(story, prompt, 3, KVCache(story.config, 1, 600), chunk_size=500)
        next(tokens)
        assert passes == [500]
        assert len(list(tokens)) == 2
    assert passes == [500, 1, 1]


def test_the_scores_of_a_prefill_are_little_at_2000_tokens_and_much_at_100000():
    per_token = {n: 4 * GIANT.n_layers * GIANT.d_model * n / 2 for n in (2_000, 100_000)}
    share_of = {n: flops / (2 * 70e9) for n, flops in per_token.items()}
    assert share_of[2_000] < 0.05
    assert share_of[100_000] > 0.9


@pytest.mark.parametrize("chunk_size", [8, 128, 500])
def test_the_lesson_prompt_gives_the_same_logits_in_chunks(story, prompt, chunk_size):
    chunked = prefill(story, prompt, KVCache(story.config, 1, 500), chunk_size)
    assert torch.allclose(chunked, story(prompt)[:, -1], atol=1e-4)


def test_two_users_take_turns(story, prompt):
    run = share(story, forward_cached, KVCache, prompt[:, :100], 32)
    assert len(run.chunks) == 4
    assert len(run.tokens) == 4 + 2 * AROUND
    assert run.tokens == sorted(run.tokens)
    assert run.chunks[0][0] == 0


def test_an_edited_question_needs_5_of_49_tokens_and_finds_the_ball(story):
    past = (
        "Mia Stone came in from the rain with a red key. She put the red key in the box. Tom Reed "
    )
    past += "came up the path with a blue ball. He put the blue ball in the jar. Where is the "
    first, edited = encode(past + "red key? In the"), encode(past + "blue ball? In the")
    cache = KVCache(story.config, batch=1, max_len=100)
    assert decode(next(stream(story, first, 2, cache))) == "box"
    shared = int((first != edited).nonzero()[0, 1])
    assert (shared, edited.shape[1]) == (44, 49)
    cache.truncate(shared)
    assert decode(next(stream(story, edited[:, shared:], 2, cache))) == "jar"


def test_rows_of_a_ragged_batch_write_what_they_write_alone(story):
    texts = ["The cat", "Where is the red key ?", "The dog slept by the"]
    feed, n_pads = pad_prompts([encode(text)[0] for text in texts], PAD)
    cache, written = KVCache(story.config, batch=3, max_len=20), []
    for _ in range(4):
        feed = forward_ragged(story, feed, n_pads, cache)[:, -1].argmax(-1, keepdim=True)
        written.append(feed)
    for text, row in zip(texts, torch.cat(written, dim=1), strict=True):
        assert row.tolist() == generate_cached(story, encode(text), 4)[0, -4:].tolist()


def count_pads_always(n_new, n_visible, n_pads):
    return torch.arange(n_visible - n_new, n_visible).expand(len(n_pads), n_new)


def count_pads_in_steps(n_new, n_visible, n_pads):
    count = ragged_positions if n_new == n_visible else count_pads_always
    return count(n_new, n_visible, n_pads)


@pytest.mark.parametrize(
    ("mistake", "forgiven"), [(count_pads_always, True), (count_pads_in_steps, False)]
)
def test_rotary_forgives_a_shifted_row_and_no_torn_one(story, monkeypatch, mistake, forgiven):
    tokens, n_pads = pad_prompts([encode("The cat")[0], encode("Where is the red key ?")[0]], PAD)
    step = encode("the the").T.contiguous()  # (2, 1)

    def last_logits():
        cache = KVCache(story.config, batch=2, max_len=10)
        forward_ragged(story, tokens, n_pads, cache)
        return forward_ragged(story, step, n_pads, cache)

    right = last_logits()
    monkeypatch.setattr(lesson, "ragged_positions", mistake)
    assert torch.allclose(right, last_logits(), atol=1e-4) is forgiven


# --- the pictures --------------------------------------------------------------------------------


def test_the_masks_that_are_drawn_are_those_of_the_answer():
    for title, rows in plots.MASKS.items():
        n_pads = torch.tensor([3 if title.startswith("row 0") else 0])
        mask = ragged_mask(len(rows), len(rows[0]), n_pads)[0, 0]
        assert [[cell != "." for cell in row] for row in rows] == mask.tolist()
        own = [row.index("i") for row in rows if "i" in row]
        assert own == list(range(3))[: len(own)]


def test_a_ttft_is_drawn_as_its_own_chunks_and_the_steps_between():
    run = Shared(tokens=[-2.0, -1.0, 4.0, 8.0, 9.0], chunks=[(0.0, 3.0), (4.0, 7.0)])
    assert (run.ttft, run.own) == (7.0, 6.0)
    assert run.steps()[2:] == [(3.0, 4.0), (7.0, 8.0), (8.0, 9.0)]
    caption = plots.draw_sharing({8: run}, 8).caption
    assert "waits 7000.0 ms: 6000.0 for its own chunks, 1000.0 for the other's steps" in caption


def test_the_timeline_shows_the_second_token_with_and_without_a_cache():
    picture = plots.draw_timeline(500, 0.0, [0.02, 0.021, 0.022], [0.02, 0.022])
    assert "20 times as long as the next ones" in picture.caption
    assert "Without a cache, the second took 1.1 times as long as the first" in picture.caption
    assert "501 rows" in "".join(text.get_text() for text in picture.figure.axes[0].texts)


def test_without_a_cache_the_second_token_computes_one_row_more_than_the_first(story, prompt):
    with count_passes(story) as passes:
        for text in (prompt, torch.cat([prompt, prompt[:, :1]], dim=1)):
            story(text)
    assert passes == [500, 501]


def test_what_is_read_for_one_token_is_written_beside_its_bar():
    picture = plots.draw_reading({"input": (70e6, 330e3), "output": (140e9, 0.66e9)})
    assert "input: 0.07 GB of weights, 0.33 MB of cache" in picture.alt
    assert "output: 140 GB of weights, 0.66 GB of cache" in picture.alt
