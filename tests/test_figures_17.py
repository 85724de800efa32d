"""What lesson 17 shows in pictures and says in its text, computed by its own functions."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from course import weights
from course.given.hybrid import CannotGoBack, HybridGPT, HybridSizes, check_hybrid_cache
from course.model.cache import CacheFull
from course.plots import linear_state as plots
from course.world.asking import (
    behind_others,
    name_after_a_pause,
    name_after_a_story,
    name_of_a_list,
    share_known,
    stories_cut,
    wrong_names_cut,
)
from course.world.evaluation import evaluate, held_out
from course.world.train_hybrid import RECIPE, SIBLINGS, starting_model
from course.world.turns import tokens_fed
from lessons import definitions_in

QWEN3_NEXT = HybridSizes(36, 12, 2, 256, 16, 32, 128, 128)
QWEN35_4B = HybridSizes(24, 8, 4, 256, 16, 32, 128, 128)
page = definitions_in("17-linear-state", story=None)


@pytest.fixture(scope="module", params=SIBLINGS)
def model(request) -> HybridGPT:
    return HybridGPT.from_weights(request.param)


@pytest.fixture(scope="module")
def hybrid() -> HybridGPT:
    return HybridGPT.from_weights("story-hybrid")


def test_published_hybrids_take_and_break_even_as_the_lesson_says():
    kept = page.state_bytes(QWEN3_NEXT)
    assert round(kept / 1e6, 1) == 77.3
    assert round(kept / (12 * 2 * 2 * 256 * 2)) == 3144
    assert page.state_bytes(QWEN3_NEXT, 1, 4, 4) / 2**20 == pytest.approx(75.376, abs=0.002)
    assert page.break_even(QWEN35_4B) == 524  # a little below the block that vLLM takes


def test_a_checkpoint_of_the_hybrid_is_nine_tokens_of_story(hybrid):
    assert hybrid.sizes == HybridSizes(3, 1, 8, 16, 8, 8, 16, 16)
    assert page.state_bytes(hybrid.sizes, 1, 4, 4) == 38_400
    assert plots.cache_bytes(page.state_bytes, hybrid.sizes, 200) == 243_200
    assert plots.cache_bytes(page.state_bytes, plots.with_full(hybrid.sizes, 4), 1000) == 4_096_000


def test_every_split_of_a_text_gives_the_logits_of_one_pass(model):
    text = stories_cut(2).before
    whole = page.feed(model, text, page.new_cache(model, text))
    for split in ([1] * 100, [70, 30], [3, 64, 1, 32]):
        cache = page.new_cache(model, text)
        parts = [page.feed(model, chunk, cache) for chunk in text.split(split, dim=1)]
        assert (torch.cat(parts, dim=1) - whole).abs().max() < 2e-4


def test_both_recall_what_a_story_said_as_well_as_its_rows_do():
    recorded = json.loads((weights.FOLDER / "metrics.json").read_text(encoding="utf-8"))
    for name in SIBLINGS:
        assert recorded[name]["stories"] >= 80
        assert recorded[name]["steps"] == RECIPE.steps == 800
        assert recorded[name]["recall_far"] > 0.99
        assert recorded[name]["loss"] < recorded["story"]["loss"]


def test_a_state_forgets_by_what_comes_between(model):
    pause = [name_after_a_pause(397, seed) for seed in range(10)]
    story = [name_after_a_story(seed) for seed in range(20)]
    first = [name_of_a_list(16, n, seed) for n in range(4) for seed in range(5)]
    last = [name_of_a_list(16, n, seed) for n in range(12, 16) for seed in range(5)]
    known = [share_known(page.reader(model), asked) for asked in (pause, story, first, last)]
    assert known[0] == 1
    assert known[1] < 0.4
    assert known[2] < 0.7 < known[3]


def test_a_story_behind_others_is_read_as_well_as_alone(model):
    behind = behind_others(held_out(3), 3)
    assert max(len(story.words) for story in behind) <= 1024
    assert evaluate(page.reader(model), behind)["recall_surname_near"] > 0.95


def test_states_that_were_left_change_little_and_say_the_wrong_name(hybrid):
    texts, names = stories_cut(20), wrong_names_cut(20)
    right, wrong, zeros = (page.after_a_cut(hybrid, texts, left) for left in ("", "left", "reset"))
    assert 0 < (wrong != right).float().mean() < 0.1
    assert (zeros != right).float().mean() > 0.12
    said, taken_back = names.said
    assert (page.after_a_cut(hybrid, names, "")[:, -1] == said).all()
    assert (page.after_a_cut(hybrid, names, "left")[:, -1] == taken_back).sum() > 15


def test_a_chat_feeds_as_many_tokens_as_the_lesson_says():
    assert tokens_fed(page.resume_point, every=1)[0] == 806
    assert tokens_fed(page.resume_point) == (3592, 0)
    assert tokens_fed(page.resume_point, prompts=True) == (1072, 8)
    assert tokens_fed(page.resume_point, every=64) == (1032, 12)
    assert tokens_fed(page.resume_point, every=16) == (856, 49)
    assert tokens_fed(page.resume_point, changed=0) == (799, 0)


def test_the_delta_rule_knows_what_was_told_last():
    generator = torch.Generator().manual_seed(3)
    keys = F.normalize(torch.randn(50, 1, 8, 16, generator=generator), dim=-1)
    values = torch.randn(50, 1, 8, 16, generator=generator)
    keys[:, :, -1] = keys[:, :, 0]
    gate, empty = torch.ones(50, 1, 8), torch.zeros(50, 1, 16, 16)
    S = page.delta_chunk(empty, keys, keys, values, gate, gate)[1]
    assert (keys[:, :, -1:] @ S - values[:, :, -1:]).abs().max() < 1e-4


def test_the_conversion_keeps_every_matrix_and_the_convolutions_change_nothing():
    model = starting_model("story-hybrid", weights.FOLDER)
    _, parent = weights.read("story")
    attn, x = model.blocks[0].attn, torch.randn(1, 5, 128)
    assert torch.equal(attn.wq.weight, parent["blocks.0.attn.wq.weight"])
    (q, _, v, beta, decay), tail = attn.project(x, torch.randn(1, 3, 384))
    assert torch.allclose(v.transpose(1, 2).flatten(2), attn.wv(x), atol=1e-6)
    assert q.shape == (1, 8, 5, 16)
    assert torch.allclose(beta, torch.full_like(beta, 0.73))
    assert decay.min() == pytest.approx(0.88, abs=1e-4)
    assert tail.shape == (1, 3, 384)


def test_what_does_not_fit_is_refused_by_name(hybrid):
    with pytest.raises(ValueError, match="lesson 03's cache"):
        check_hybrid_cache(replace(hybrid.sizes, n_linear=0, n_full=4), [True] * 4, 1, 9)
    two_of_each = HybridSizes(2, 2, 8, 16, 8, 8, 16, 16)
    with pytest.raises(ValueError, match="full="):
        page.HybridCache(two_of_each, hybrid.full, 1, 9)
    with pytest.raises(ValueError, match="not the weights of a hybrid"):
        HybridGPT.from_weights("story")
    with pytest.raises(ValueError, match="states equally"):
        HybridSizes(1, 1, 1, 2, 3, 4, 2, 2)
    cache = page.HybridCache(hybrid.sizes, hybrid.full, 1, 4)
    with pytest.raises(CacheFull):
        page.feed(hybrid, torch.zeros(1, 5, dtype=torch.int64), cache)
    page.feed(hybrid, torch.zeros(1, 4, dtype=torch.int64), cache)
    with pytest.raises(CannotGoBack):
        cache.truncate(2)
    with pytest.raises(ValueError, match="layer 3 is a full layer"):
        cache.state(3)
    with pytest.raises(ValueError, match="with a cache"):
        hybrid(torch.zeros(1, 2, dtype=torch.int64))


def test_pictures_say_what_they_show(hybrid):
    states = {2: torch.eye(3), 5: torch.eye(3) * 2}
    assert "largest difference 1" in plots.draw_cut(states, 2, 5).caption
    picture = plots.draw_bytes(page.state_bytes, page.break_even, hybrid.sizes, 1000)
    assert "4 full (story): 4,096,000" in picture.caption
    assert "Below 13 tokens" in picture.caption
    known = plots.draw_known({"a\nlist": {"story": 1.0, "hybrid": 0.5}})
    assert "a list: story 100%, hybrid 50%" in known.caption
    functions = page.state_bytes, page.break_even, page.resume_point
    chosen = [
        plots.draw_choice(*functions, hybrid.sizes, n_full, every, 400, 12).caption
        for n_full, every in ((1, 64), (0, None), (4, None))
    ]
    for caption, again in zip(chosen, (4, 388, 0), strict=True):
        assert f"To take 12 tokens back, {again} are fed again" in caption
    assert "230,400 of them checkpoints" in chosen[0]
