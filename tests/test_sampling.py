"""How the engine draws tokens: what is ruled out, as in `transformers`, and how often each comes."""

import math
from collections import Counter

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from course.engine import Engine
from course.model import MiniGPT
from course.serving.conversation import Sampling
from course.world.tokenizer import encode


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("top_k", [0, 1, 5, 40, 90])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.95, 1.0])
def test_scores_are_those_of_transformers(temperature, top_k, top_p):
    logits = 3 * torch.randn(50, generator=torch.Generator().manual_seed(top_k))
    theirs = [TemperatureLogitsWarper(temperature)]
    theirs += [TopKLogitsWarper(top_k)] if top_k else []
    theirs += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    expected = LogitsProcessorList(theirs)(None, logits[None])[0]
    torch.testing.assert_close(Sampling(temperature, top_k, top_p).scores(logits), expected)


def test_each_conversation_draws_by_its_own_settings():
    story = MiniGPT.from_weights("story")
    prompt = encode("He put the black lamp in the shed. The")[0].tolist()
    engine, n = Engine(story, n_blocks=8, max_running=8), 400
    drawn = Sampling(temperature=1.0)
    draws = [Sampling(1.0, seed=seed) for seed in range(n)]
    asked = [engine.conversation(prompt, 1, sampling=draw) for draw in draws]
    greedy = engine.conversation(prompt, 3)
    narrow = engine.conversation(prompt, 3, sampling=Sampling(temperature=5.0, top_k=1))
    engine.add([*asked, greedy, narrow])
    while engine.queue or engine.running:
        engine.step()
    assert narrow.out == greedy.out
    found = Counter(one.out[0] for one in asked)
    with torch.no_grad():
        odds = drawn.scores(story(torch.tensor([prompt]))[0, -1]).softmax(dim=-1)
    for token, p in enumerate(odds.tolist()):
        assert abs(found[token] - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 1


def test_an_answer_ends_with_the_first_token_that_ends_it():
    engine = Engine(MiniGPT.from_weights("story"))
    prompt = encode("The cat sat")[0].tolist()
    (whole,) = engine.serve([prompt], 12)
    ended = engine.conversation(prompt, 12, ends={whole[4], whole[7]})
    engine.add([ended])
    while not ended.done:
        engine.step()
    place = min(whole.index(whole[4]), whole.index(whole[7]))
    assert ended.out == whole[: place + 1]
    assert not engine.running
