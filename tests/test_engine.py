"""The engine: texts as written alone, memory by lesson 10's formula, checkpoints as `transformers` reads
them, and errors at the door. Its speed is measured by benchmarks/engine.py."""

from collections import defaultdict, deque
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from checkpoint_folder import write_checkpoint

from course.engine import Engine
from course.minigpt.kv_cache import generate_cached, kv_cache_bytes
from course.minigpt.paged_cache import reusable_blocks
from course.minigpt.sparse_read import page_bounds
from course.minigpt.split_read import attend_part
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.published.texts import open_model
from course.serving.alone import Pace
from course.serving.pages import DecodeTogether, Sizes
from course.serving.sparse import PAGE, Bounds
from course.world.evaluation import held_out
from course.world.tokenizer import encode

ON_CPU = torch.profiler.ProfilerActivity.CPU


@pytest.fixture(scope="module")
def story() -> MiniGPT:
    return MiniGPT.from_weights("story")


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Eight conversations that begin with the same 100 tokens."""
    texts = [one.text.split() for one in held_out(9)]
    shared = texts[8][:100]
    return [
        encode(" ".join([*shared, *words[: 5 + 3 * i]]))[0].tolist()
        for i, words in enumerate(texts[:8])
    ]


def alone(model: MiniGPT, prompt: list[int], n_new: int) -> list[int]:
    return generate_cached(model, torch.tensor([prompt]), n_new)[0, len(prompt) :].tolist()


# --- texts ---------------------------------------------------------------------------------------


def test_eight_conversations_get_the_texts_that_they_get_alone(story, prompts):
    assert Engine(story).serve(prompts, 40) == [alone(story, prompt, 40) for prompt in prompts]


@pytest.mark.parametrize("seed", range(6))
def test_texts_are_the_same_whatever_the_sizes(seed, monkeypatch):
    """Small pools in which conversations wait, blocks of odd sizes, budgets below a prompt."""
    monkeypatch.setattr("course.serving.pages.WORTH_SHARING", 0)
    rng = np.random.default_rng(seed)
    mini = MiniGPT.from_weights("mini")
    begin = rng.integers(3, 200, 9).tolist()
    prompts = [
        begin[: int(rng.integers(1, 10))] + rng.integers(3, 200, int(rng.integers(0, 9))).tolist()
        for _ in range(7)
    ]
    size, n_new = int(rng.integers(1, 7)), int(rng.integers(1, 12))
    most = max(-(-(len(prompt) + n_new - 1) // size) for prompt in prompts)
    engine = Engine(
        mini,
        most + int(rng.integers(0, 8)),
        size,
        int(rng.integers(1, 5)),
        int(rng.integers(1, 20)),
    )
    assert engine.serve(prompts, n_new) == [alone(mini, prompt, n_new) for prompt in prompts]
    assert not engine.running
    free = engine.memory.pool.allocator
    assert len(free) + len(engine.memory.known) == engine.memory.pool.n_blocks


@pytest.mark.parametrize("multiple", [1, 2, 8])
@pytest.mark.parametrize("worth_sharing", [0, 1 << 30], ids=["shared", "separate"])
def test_rounded_sizes_give_the_same_texts(story, prompts, multiple, worth_sharing, monkeypatch):
    """As on a GPU: some rows are there twice, some pages are read that belong to nobody."""
    monkeypatch.setattr("course.serving.pages.WORTH_SHARING", worth_sharing)
    engine = Engine(story)
    engine.together = DecodeTogether(engine.weights, engine.memory.pool, multiple)
    expected = [alone(story, prompt, 20) for prompt in prompts[:5]]
    assert engine.serve(prompts[:5], 20) == expected


def test_no_shape_of_a_pass_depends_on_its_numbers(story, prompts, monkeypatch):
    """What a CUDA graph needs: passes of the same sizes are the same operations."""
    monkeypatch.setattr("course.serving.pages.WORTH_SHARING", 0)
    engine, passes = Engine(story), defaultdict(list)
    engine.together = together = DecodeTogether(engine.weights, engine.memory.pool, 8)

    def forward(sizes: Sizes, inputs: torch.Tensor) -> torch.Tensor:
        with torch.profiler.profile(activities=[ON_CPU], record_shapes=True) as profile:
            logits = DecodeTogether.forward(together, sizes, inputs)
        passes[sizes].append([(e.name, str(e.input_shapes)) for e in profile.events()])
        return logits

    together._run, together._buffers = forward, None
    engine.serve([prompts[0], prompts[1] * 2, prompts[2]], 20)
    assert max(map(len, passes.values())) > 10
    for same in passes.values():
        assert all(operations == same[0] for operations in same)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_eight_conversations_get_the_same_texts_from_cuda_graphs(prompts):
    model = MiniGPT.from_weights("story").to("cuda")
    expected = [Engine(model).serve([prompt], 40)[0] for prompt in prompts]
    engine = Engine(model)
    assert engine.serve(prompts, 40) == expected
    assert engine.serve(prompts[:3], 40) == expected[:3]  # in other blocks
    assert engine.together._graphs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_function_that_waits_for_the_device_is_run_as_it_is(prompts, monkeypatch):
    """As a student's may, in the place of ours."""
    model = MiniGPT.from_weights("story").to("cuda")
    expected = Engine(model).serve(prompts, 20)

    def waiting(q, k, v, mask=None):
        assert float(q.abs().max()) < 1e6
        return attend_part(q, k, v, mask)

    monkeypatch.setattr("course.serving.pages.attend_part", waiting)
    engine = Engine(model)
    assert engine.serve(prompts, 20) == expected
    assert not engine.together._graphs


@pytest.mark.parametrize("pays", [True, False, None], ids=["guesses", "none", "as measured"])
def test_one_conversation_alone_gets_the_same_text(story, prompts, pays, monkeypatch):
    if pays is not None:
        monkeypatch.setattr(Pace, "pays", pays)
    engine = Engine(story)
    for prompt in (*prompts[:2], encode("The cat sat")[0].tolist()):
        for n_new in (1, 2, 60):
            conversation = engine.conversation(prompt, n_new)
            shown = [new for written in engine.run([conversation]) for new in written]
            assert [token for _, token in shown] == conversation.out == alone(story, prompt, n_new)
            assert {id for id, _ in shown} == {conversation.id}
            assert len(engine.alone.decoder) == conversation.fed == len(prompt) + n_new - 1


def test_what_a_conversation_alone_repeats_of_the_last_is_not_fed_again(story, prompts):
    engine = Engine(story)
    first = engine.conversation(prompts[0], 30)
    deque(engine.run([first]))
    turn = [*prompts[0], *first.out, *prompts[1][-5:]]
    second = engine.conversation(turn, 20)
    deque(engine.run([second]))
    assert (first.reused, second.reused) == (0, len(prompts[0]) + 29)  # the last was never fed
    assert second.out == alone(story, turn, 20)
    third = engine.conversation(turn[:50], 20)  # all but its last token, which has to be fed
    deque(engine.run([third]))
    assert third.reused == 49
    assert third.out == alone(story, turn[:50], 20)


def test_a_conversation_alone_ends_at_its_end_also_within_a_guess(story, prompts, monkeypatch):
    monkeypatch.setattr(Pace, "pays", True)
    out = alone(story, prompts[2], 60)
    for place in (0, 7, 20, 33):
        conversation = Engine(story).conversation(prompts[2], 60, ends={out[place]})
        engine = Engine(story)
        deque(engine.run([conversation]))
        assert conversation.out == out[: out.index(out[place]) + 1]


def test_guesses_are_made_while_they_write_more_and_tried_again():
    pace, made = Pace(), []
    for number in range(120):
        made.append(pace.pays)
        kept = 4 if number >= 60 else 0  # guesses begin to be right
        pace.note(made[-1], 1 + kept * made[-1], 0.002 if made[-1] else 0.001)
    assert made[:4] == [False] * 4
    assert made[4:8] == [True] * 4
    assert sum(made[8:60]) == 1  # at half the speed they cost; after 32 passes one is tried again
    first = made.index(True, 60)
    assert first < 60 + Pace.again_after
    assert all(made[first:])


def test_conversations_that_come_later_join_those_that_run(story, prompts):
    engine = Engine(story, max_running=3)
    requests = []
    for prompt in prompts:
        requests.append(engine.conversation(prompt, 6))
        engine.add(requests[-1:])
        engine.step()
    while not all(request.done for request in requests):
        engine.step()
    assert [request.out for request in requests] == [alone(story, p, 6) for p in prompts]


# --- memory --------------------------------------------------------------------------------------


def test_a_shared_prefix_takes_its_bytes_once(story, prompts):
    engine = Engine(story, n_blocks=200)
    engine.add([engine.conversation(prompts[0], 1)])
    engine.step()
    requests = [engine.conversation(prompt, 20) for prompt in prompts]
    engine.add(requests)
    for _ in range(10):
        engine.step()
    pool, size = engine.memory.pool, engine.memory.pool.block_size
    tables = [cache.table for _, cache in engine.running.values()]
    assert len(tables) == 8
    assert {tuple(table[:6]) for table in tables} == {tuple(tables[0][:6])}  # 96 of 100 tokens
    for request, cache in engine.running.values():
        blocks = -(-len(cache) // size)
        assert cache.nbytes() == kv_cache_bytes(story.config, blocks * size, 1, 4)
        assert request.fed == len(cache)
    used = {block for table in tables for block in table}
    assert len(used) == 6 + sum(len(table) - 6 for table in tables)
    assert not all(request.done for request in requests)
    assert pool.n_blocks - len(pool.allocator) >= len(used)


@pytest.mark.parametrize("n_prompt", [1, 15, 16, 17, 90])
def test_where_all_pages_are_read_the_text_is_the_same(story, prompts, n_prompt):
    prompt = prompts[0][:n_prompt]
    assert Engine(story, read=9).serve([prompt], 40) == [alone(story, prompt, 40)]


def test_with_few_pages_a_story_goes_on_in_another_way_and_all_rows_are_kept(story, prompts):
    few = Engine(story, read=2)
    texts = [few.serve([prompt], 60)[0] for prompt in prompts[:4]]
    right = [alone(story, prompt, 60) for prompt in prompts[:4]]
    assert texts != right
    assert few.cache_bytes == kv_cache_bytes(story.config, len(prompts[3]) + 59, 1, 4)


def test_bounds_that_are_kept_are_those_of_all_keys():
    keys, kept = torch.randn(1, 2, 70, 4), Bounds()
    for end in (5, 16, 17, 31, 32, 33, 70):
        for bound, anew in zip(
            kept.of(keys[:, :, :end]), page_bounds(keys[:, :, :end], PAGE), strict=True
        ):
            assert torch.equal(bound, anew)


def test_several_cannot_read_some_of_their_pages(story, prompts):
    with pytest.raises(ValueError, match="only a conversation alone"):
        Engine(story, read=3).serve(prompts[:2], 4)


def test_known_blocks_make_room_for_new_conversations(story):
    engine = Engine(story, n_blocks=12, block_size=16)
    rng = np.random.default_rng(0)
    for _ in range(6):
        prompt = rng.integers(3, 200, 150).tolist()
        one = engine.conversation(prompt, 20)
        engine.add([one])
        while not one.done:
            engine.step()
        assert one.out == alone(story, prompt, 20)
    assert len(engine.memory.pool.allocator) + len(engine.memory.known) == 12


def test_the_last_block_of_the_text_used_least_recently_is_forgotten_first(story):
    engine = Engine(story, n_blocks=20, block_size=16)
    memory = engine.memory
    rng = np.random.default_rng(1)
    first, second = (rng.integers(3, 200, 100).tolist() for _ in range(2))
    for prompt in (first, second, first):  # six full blocks each; the first text is used again
        one = engine.conversation(prompt, 2)
        engine.add([one])
        while not one.done:
            engine.step()
    assert memory.make_room(len(memory.pool.allocator) + 2)
    found = [len(reusable_blocks([*text, 5], 16, memory.known)) for text in (first, second)]
    assert found == [6, 4]


# --- checkpoints ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("llama"))


def test_a_checkpoint_gets_the_text_of_transformers(checkpoint):
    model, words = open_model(checkpoint)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    prompts = ["once upon a time", "there was a small engine", "token after token"]
    for prompt in prompts:
        assert words.encode(prompt) == tokenizer(prompt)["input_ids"]
    asked = [words.encode(prompt) for prompt in prompts]
    together = Engine(model).serve(asked, 30)
    for prompt, tokens, out in zip(prompts, asked, together, strict=True):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        wanted = theirs.generate(
            ids, do_sample=False, max_new_tokens=30, eos_token_id=None, pad_token_id=0
        )
        assert [*tokens, *out] == wanted[0].tolist()
        assert Engine(model).serve([tokens], 30) == [out]
        assert words.decode(out) == tokenizer.decode(out, skip_special_tokens=True)


# --- at the door ---------------------------------------------------------------------------------


def test_what_cannot_be_served_is_refused_and_changes_nothing(story):
    engine = Engine(story, n_blocks=4, block_size=8)
    for prompt, n_new, said in (
        ([3] * 30, 4, "30 tokens and 4 new ones need 5 blocks of 8; the whole pool has 4"),
        ([], 4, "at least one row and one token"),
        ([3, 9999], 4, "token ids must lie in"),
        ([3], 0, "n_new"),
    ):
        with pytest.raises(ValueError, match=said):
            engine.add([engine.conversation([3, 4], 1), engine.conversation(prompt, n_new)])
        with pytest.raises(ValueError, match=said):
            engine.serve([[3, 4], prompt], n_new)
    with pytest.raises(ValueError, match="n_new"):  # beyond the model's longest text
        engine.conversation([3] * 20, story.config.max_seq_len)
    assert not engine.queue
    assert len(engine.memory.pool.allocator) == 4
    with pytest.raises(ValueError, match="budget"):
        Engine(story, budget=0)


def test_a_config_is_all_that_sizes_need():
    """A model without grouped heads, with tied embeddings."""
    config = GPTConfig(60, 2, 32, 4, 4, 48, max_seq_len=64, tie_embeddings=True)
    torch.manual_seed(0)
    model = MiniGPT(config)
    prompts = [[3, 4, 5], [7] * 20]
    assert Engine(model, 16, 4).serve(prompts, 9) == [alone(model, p, 9) for p in prompts]
