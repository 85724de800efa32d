"""What lesson 12 shows in pictures and says in its text, computed by its own functions; never timed."""

import math

import numpy as np
import pytest
import torch

from course.drafts.model import ModelDraft, acceptance, first_layers
from course.drafts.race import Tally, race
from course.drafts.sampled import draw_twice, odds_of
from course.drafts.table import NextWords, NextWordsAndOwn
from course.minigpt.kv_cache import KVCache, generate_cached
from course.minigpt.sliding_window import WindowedKVCache
from course.minigpt.speculative import (
    expected_tokens,
    lookup_draft,
    speculate,
    verify_greedy,
    verify_sampled,
)
from course.model import MiniGPT
from course.model.cache import CacheFull
from course.plots import speculative as plots
from course.plots.style import Picture
from course.world.evaluation import held_out
from course.world.tokenizer import encode


@pytest.fixture(scope="module")
def models() -> dict[str, MiniGPT]:
    return {name: MiniGPT.from_weights(name) for name in ("story", "mini", "story-g1")}


@pytest.fixture(scope="module")
def prompts():
    return [encode(" ".join(text.text.split()[:60]))[0] for text in held_out(4)]


@pytest.fixture(scope="module")
def found(models, prompts) -> dict[str, Tally]:
    table = NextWords.of_stories(300)
    drafts = {
        "mini": lambda: ModelDraft(models["mini"], 180).propose,
        "story-g1": lambda: ModelDraft(models["story-g1"], 180).propose,
        "2 of 4 layers": lambda: ModelDraft(first_layers(models["story"], 2), 180).propose,
        "lookup": lambda: lookup_draft,
        "table": lambda: table.propose,
        "table + own text": lambda: NextWordsAndOwn(table).propose,
    }
    return race(models["story"], drafts, prompts, 120, 4, speculate, generate_cached, rounds=1)


# --- what is counted -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draft", "least", "most"),
    [
        ("mini", 3.0, 3.7),
        ("story-g1", 3.0, 3.6),
        ("2 of 4 layers", 1.5, 1.9),
        ("lookup", 1.25, 1.5),
        ("table", 2.1, 2.5),
        ("table + own text", 2.2, 2.6),
    ],
)
def test_tokens_a_pass(found, draft, least, most):
    assert least < found[draft].per_pass < most


@pytest.mark.slow
def test_the_formula_follows_what_is_counted(found):
    for name, tally in found.items():
        expected = expected_tokens(tally.acceptance, 4)
        if name != "lookup":  # which often proposes nothing
            assert tally.per_pass == pytest.approx(expected, rel=0.12), name


@pytest.mark.slow
def test_every_new_token_has_a_mark(found):
    for tally in found.values():
        assert len(tally.marks) == len(tally.text) == 120
        assert tally.marks.count("drafted") <= tally.kept


def test_sampling_accepts_more_than_greedy_choice_for_good_drafts(models, prompts):
    texts = [generate_cached(models["story"], prompt[None], 120)[0] for prompt in prompts]
    for name in ("mini", "story-g1"):
        greedy, sampled = acceptance(models["story"], models[name], texts)
        assert greedy < 0.86 < 0.93 < sampled, name
    greedy, sampled = acceptance(models["story"], models["story"], texts[:1])
    assert greedy == 1
    assert sampled == pytest.approx(1, abs=1e-5)


# --- the odds, from end to end -------------------------------------------------------------------


@pytest.mark.slow
def test_a_text_drawn_with_guesses_has_the_models_odds():
    """Two tokens of a language of five words, drawn 40,000 times with a draft that is often wrong."""
    rng = np.random.default_rng(0)
    p0, p1 = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5), size=5)  # the second by the first
    q0, q1 = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5), size=5)
    generator = torch.Generator().manual_seed(0)
    counts = np.zeros((5, 5))
    rows = {a: torch.tensor(np.stack([p0, p1[a], np.ones(5) / 5])) for a in range(5)}
    drafts = {a: torch.tensor(np.stack([q0, q1[a]])) for a in range(5)}
    n = 40_000
    for a in rng.choice(5, n, p=q0).tolist():
        b = int(rng.choice(5, p=q1[a]))
        kept, token = verify_sampled(torch.tensor([a, b]), drafts[a], rows[a], generator)
        first = a if kept else token
        if kept == 2:
            second = b
        elif kept == 1:
            second = token
        else:
            second = int(rng.choice(5, p=p1[first]))  # the next pass
        counts[first, second] += 1
    wanted = n * p0[:, None] * p1
    assert ((counts - wanted) ** 2 / wanted).sum() < 80  # 24 degrees of freedom


def test_a_text_of_guesses_is_generate_cacheds_with_any_draft(models, prompts):
    story = models["story"]
    noise = torch.Generator().manual_seed(0)

    def propose(text, k):
        n = int(torch.randint(0, k + 1, (), generator=noise))
        return torch.randint(0, story.config.vocab_size, (n,), generator=noise)

    alone = generate_cached(story, prompts[0][None], 30)[0]
    assert torch.equal(speculate(story, propose, prompts[0], 30, 3), alone)
    own = ModelDraft(story, 120)
    assert torch.equal(speculate(story, own.propose, prompts[0], 30, 3), alone)


# --- drafts --------------------------------------------------------------------------------------


def test_the_table_proposes_what_followed_most_often():
    table = NextWords([[1, 2, 3, 1, 2, 3, 1, 2, 4]], longest=2)
    assert table.propose(torch.tensor([9, 1, 2]), 3).tolist() == [3, 1, 2]
    assert table.propose(torch.tensor([7]), 3).tolist() == []
    own = NextWordsAndOwn(table)
    assert own.propose(torch.tensor([1, 2, 8, 5, 1, 2]), 2).tolist() == [8, 5]


def test_no_story_of_the_table_is_held_out():
    table = NextWords.of_stories(1)
    first = encode(held_out(1)[0].text)[0].tolist()
    known = sum(tuple(first[i : i + 4]) in table.next for i in range(len(first) - 4))
    assert known < 0.5 * len(first)


def test_a_model_draft_goes_back_where_its_guesses_were_wrong(models, prompts):
    draft = ModelDraft(models["mini"], 100)
    draft.propose(prompts[0], 4)
    other = torch.cat([prompts[0][:50], prompts[1][:5]])
    assert torch.equal(
        draft.propose(other, 3), generate_cached(models["mini"], other[None], 3)[0, -3:]
    )


# --- pictures ------------------------------------------------------------------------------------


def test_the_picture_of_rejection_adds_up():
    p, q = plots._ODDS["p"], plots._ODDS["q"]
    assert sum(p) == pytest.approx(1)
    assert sum(q) == pytest.approx(1)
    picture = plots.draw_rejection()
    assert isinstance(picture, Picture)
    assert "0.34 in all" in picture.caption


@pytest.mark.slow
def test_the_text_is_drawn_with_all_its_words(found, prompts):
    picture = plots.draw_marks(prompts[-1], found["table + own text"])
    assert len(picture.figure.axes[0].texts) == 126
    marks = found["table + own text"].marks
    assert f"{marks.count('drafted')} guessed and kept" in picture.caption


# --- at the door ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: verify_greedy(torch.tensor([1, 2]), torch.zeros(2, 5)), "need 3 rows"),
        (lambda: verify_greedy(torch.tensor([7]), torch.zeros(2, 5)), "must lie in 0 … 4"),
        (lambda: verify_greedy(torch.tensor([1.0]), torch.zeros(2, 5)), "int64"),
        (
            lambda: verify_sampled(
                torch.tensor([1]), torch.full((1, 4), 0.3), torch.full((2, 4), 0.25)
            ),
            "each row of q must be probabilities that add up to 1; row 0 adds up to 1.2",
        ),
        (
            lambda: verify_sampled(
                torch.tensor([1]), torch.full((1, 4), 0.25), torch.full((2, 4), math.nan)
            ),
            "each row of p must be probabilities",
        ),
        (
            lambda: verify_sampled(
                torch.tensor([1]), torch.full((2, 4), 0.25), torch.full((2, 4), 0.25)
            ),
            "q must be",
        ),
        (lambda: lookup_draft(torch.tensor([1]), -1), "n_draft"),
        (lambda: lookup_draft(torch.tensor([1]), 2, 0), "longest"),
        (lambda: lookup_draft(torch.zeros(0, dtype=torch.int64), 2), "at least one token"),
        (lambda: expected_tokens(1.1, 2), "acceptance must lie in 0 … 1, got 1.1"),
        (lambda: expected_tokens(math.nan, 2), "acceptance"),
        (lambda: expected_tokens(0.5, -1), "n_draft"),
        (lambda: NextWords([], 0), "longest"),
    ],
)
def test_bad_input_is_refused_by_name(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_request_that_cannot_be_served_changes_nothing(models):
    mini = models["mini"]
    prompt, cache = torch.tensor([3, 4, 5]), KVCache(mini.config, 1, 6)
    for arguments, said in (
        ((torch.tensor([[3, 4]]), 2, 2), "prompt must be"),
        ((prompt[:0], 2, 2), "at least one row and one token"),
        ((prompt, -1, 2), "n_new"),
        ((prompt, 2, -1), "n_draft"),
    ):
        with pytest.raises(ValueError, match=said):
            speculate(mini, lookup_draft, *arguments, cache)
    with pytest.raises(CacheFull, match="7 tokens more than 0 of 6 places"):
        speculate(mini, lookup_draft, prompt, 5, 2, cache)
    assert len(cache) == 0
    assert speculate(mini, lookup_draft, prompt, 4, 2, cache).shape == (7,)


def test_a_ring_refuses_to_go_back(models):
    """As the lesson's last question says."""
    mini = models["mini"]
    ring = WindowedKVCache(mini.config, 1, mini.config.max_seq_len, window=8)

    def propose(text, k):
        return torch.zeros(k, dtype=torch.int64)

    with pytest.raises(ValueError, match=r"rows that token \d+ needs are overwritten"):
        speculate(mini, propose, torch.arange(3, 20), 20, 4, ring)


def test_drawn_texts_are_the_models_own_and_a_kept_guess_shines_through(models):
    """With verify_sampled each pair is as frequent as the model's odds say, within five deviations."""
    story, mini, n = models["story"], models["mini"], 2000
    start = encode("He put the black lamp in the shed. The")[0]

    def keep(draft, q, p, generator):
        return 1, int(torch.multinomial(p[1], 1, generator=generator))

    counts = {
        "model alone": draw_twice(start, n, story),
        "your rule": draw_twice(start, n, story, mini, verify_sampled, seed=1),
        "every guess kept": draw_twice(start, n, story, mini, keep, seed=2),
    }
    p, text, far = odds_of(story), tuple(start.tolist()), []
    for way, found in counts.items():
        assert found.total() == n
        for first, second in counts["model alone"]:
            odds = float(p(text)[first] * p((*text, first))[second])
            if abs(found[first, second] - n * odds) > 5 * math.sqrt(n * odds * (1 - odds)) + 1:
                far.append(way)
    assert set(far) == {"every guess kept"}
    picture = plots.draw_pairs(counts)
    assert len(picture.figure.axes[0].patches) == 18
    assert "The largest gap to model alone: your rule, " in picture.caption
