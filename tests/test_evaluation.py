"""The measure of a model is right where the answer is known beforehand."""

import math

import pytest
import torch
import torch.nn.functional as F

from course.world.evaluation import FAR, evaluate, held_out
from course.world.stories import Story
from course.world.tokenizer import END, VOCAB_SIZE, encode

STORIES = held_out(20)


def knows_all(tokens):
    """A model that has read the stories beforehand: nearly all its belief is on the next token."""
    following = tokens.roll(-1, dims=1)  # (B, T)
    return F.one_hot(following, VOCAB_SIZE).float() * 50  # (B, T, V)


def sees_back(n):
    """A model that knows all but what was last said n or more tokens before."""

    def forward(tokens):
        logits = knows_all(tokens)
        for row in range(len(tokens)):
            for t in range(tokens.shape[1] - 1):
                following = tokens[row, t + 1]
                before = (tokens[row, : t + 1] == following).nonzero().flatten()
                if len(before) == 0 or t + 1 - int(before[-1]) >= n:
                    logits[row, t] = 0
        return logits

    return forward


def test_a_model_that_knows_all_recalls_all():
    quality = evaluate(knows_all, STORIES)
    recalls = [value for name, value in quality.items() if name.startswith("recall")]
    assert len(recalls) == 6
    assert set(recalls) == {1.0}
    assert quality["loss"] == pytest.approx(0, abs=1e-6)
    assert quality["perplexity"] == pytest.approx(1)


def test_a_model_that_knows_nothing_is_as_perplexed_as_the_vocabulary_is_large():
    quality = evaluate(lambda tokens: torch.zeros(*tokens.shape, VOCAB_SIZE), STORIES)
    assert quality["perplexity"] == pytest.approx(VOCAB_SIZE, rel=1e-5)
    assert quality["recall_near"] == quality["recall_far"] == 0


def test_a_model_that_sees_100_tokens_back_recalls_what_is_near_and_nothing_far():
    quality = evaluate(sees_back(FAR), STORIES)
    assert quality["recall_near"] == 1
    assert quality["recall_far"] == 0


def test_padding_and_batching_change_nothing():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=generator)
    alone = evaluate(lambda tokens: table[tokens], STORIES, batch=1)
    together = evaluate(lambda tokens: table[tokens], STORIES, batch=7)
    assert together == pytest.approx(alone)


def test_every_word_but_the_first_is_predicted_and_so_is_the_end():
    story = STORIES[:1]
    seen = []
    table = torch.eye(VOCAB_SIZE)

    def forward(tokens):
        seen.append(tokens)
        return table[tokens]

    quality = evaluate(forward, story)
    expected = torch.cat([encode(story[0].text)[0], torch.tensor([END])])
    assert seen[0].tolist() == [expected.tolist()]
    by_hand = F.cross_entropy(table[expected[:-1]], expected[1:]).item()
    assert quality["loss"] == pytest.approx(by_hand)


def test_a_recall_without_questions_is_not_a_number():
    quality = evaluate(knows_all, [Story(("The", "cat", "sat"), ())])
    assert quality["questions_near"] == quality["questions_far"] == 0
    assert math.isnan(quality["recall_near"])
    assert math.isnan(quality["recall_far"])


@pytest.mark.parametrize("n", [0, -1])
def test_no_held_out_stories_is_refused(n):
    with pytest.raises(ValueError, match=f"at least 1, got {n}"):
        held_out(n)
