"""Training is repeatable, survives being killed, and learns."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from course.minigpt.gqa import mean_pool_kv_heads
from course.minigpt.mini_gpt import attention_layer
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.world import train as training
from course.world.tokenizer import PAD, VOCAB_SIZE, decode
from course.world.train import Phase, Recipe, learning_rate, repeats, rows_of_stories

pytestmark = pytest.mark.slow

TINY = Recipe(
    GPTConfig(VOCAB_SIZE, n_layers=1, d_model=16, n_heads=2, n_kv_heads=2, d_ff=16),
    (Phase("repeats", 150, 8, 32), Phase("stories", 150, 2, 64)),
    rate=1e-2,
)
TRAIN_TINY = """
import sys
from pathlib import Path
from course.world import train as training
from tests.test_training import TINY
training.THREADS = 1
training.train("tiny", TINY, Path(sys.argv[1]), Path(sys.argv[1]) / "runs", save_every=10)
"""


def train_tiny(folder: Path, recipe: Recipe = TINY, name: str = "tiny") -> dict[str, torch.Tensor]:
    training.train(name, recipe, folder, folder / "runs", save_every=10)
    return load_file(folder / f"{name}.safetensors")


@pytest.fixture(scope="module", autouse=True)
def small_and_single():
    """A record from a few stories is enough here, and one thread is quicker on tiny matrices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "HELD_OUT", 5)
        patch.setattr(training, "THREADS", 1)
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    train_tiny(folder)
    return folder


def assert_same_weights(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_training_again_gives_the_same_weights(uninterrupted, tmp_path):
    assert_same_weights(train_tiny(tmp_path), load_file(uninterrupted / "tiny.safetensors"))
    files = [(folder / "tiny.safetensors").read_bytes() for folder in (tmp_path, uninterrupted)]
    assert files[0] == files[1]


def test_a_killed_run_resumes_and_ends_with_the_same_weights(uninterrupted, tmp_path):
    checkpoint = tmp_path / "runs" / "tiny.pt"
    command = [sys.executable, "-c", TRAIN_TINY, str(tmp_path)]
    root = Path(__file__).parents[1]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL)
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = torch.load(checkpoint, weights_only=True)["done"]
    assert 0 < done < TINY.steps
    assert not (tmp_path / "tiny.safetensors").exists()
    assert_same_weights(train_tiny(tmp_path), load_file(uninterrupted / "tiny.safetensors"))


def test_a_finished_run_takes_no_step_more(uninterrupted):
    before = load_file(uninterrupted / "tiny.safetensors")
    assert_same_weights(train_tiny(uninterrupted), before)


def test_a_checkpoint_of_another_recipe_is_refused(uninterrupted):
    other = Recipe(TINY.config, TINY.phases, rate=2e-2)
    with pytest.raises(ValueError, match=r"tiny\.pt is of another recipe"):
        train_tiny(uninterrupted, other)


def test_training_leaves_the_settings_of_torch_as_they_were(tmp_path, monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(training, "THREADS", threads + 1)
    train_tiny(tmp_path, Recipe(TINY.config, (Phase("repeats", 1, 2, 32),), rate=1e-2))
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_training_lowers_the_loss(uninterrupted):
    model = MiniGPT.from_state(TINY.config, load_file(uninterrupted / "tiny.safetensors"))
    untrained = training.starting_model(TINY, uninterrupted)
    tokens, targets = rows_of_stories(seed=999, batch=4, length=64)

    def loss(model):
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    assert loss(model) < loss(untrained) - 1


def test_a_sibling_starts_from_its_parent_with_pooled_heads(uninterrupted):
    one_head = GPTConfig(VOCAB_SIZE, n_layers=1, d_model=16, n_heads=2, n_kv_heads=1, d_ff=16)
    sibling = Recipe(one_head, (Phase("stories", 1, 2, 32),), rate=0.0, parent="tiny")
    parent = load_file(uninterrupted / "tiny.safetensors")
    child = train_tiny(uninterrupted, sibling, name="child")
    for name in ("wk", "wv"):
        key = f"blocks.0.attn.{name}.weight"
        top, bottom = parent[key].float().chunk(2)  # (D, C) each: the rows of head 0, of head 1
        assert torch.allclose(child[key].float(), (top + bottom) / 2, atol=1e-3)
    assert torch.equal(child["embed.weight"], parent["embed.weight"])


def test_a_sibling_without_its_parent_is_a_clear_error(tmp_path):
    sibling = Recipe(TINY.config, TINY.phases, rate=1e-3, parent="tiny")
    with pytest.raises(ValueError, match=r"tiny\.safetensors, which is missing"):
        train_tiny(tmp_path, sibling, name="child")


def test_pooling_to_as_many_heads_changes_nothing():
    model = training.starting_model(training.RECIPES["mini"], Path())
    state = model.state_dict()
    pooled = mean_pool_kv_heads(state, model.config, model.config.n_kv_heads)
    assert all(torch.equal(pooled[name], state[name]) for name in state)


@pytest.mark.parametrize("n_kv_heads", [8, 2])
def test_the_fast_attention_is_that_of_lesson_01(n_kv_heads):
    config = GPTConfig(VOCAB_SIZE, 1, 64, 8, n_kv_heads, 32)
    torch.manual_seed(0)
    plain = MiniGPT(config, attention_layer)
    fast = MiniGPT.from_state(config, plain.state_dict(), training.attention_layer)
    tokens = torch.randint(0, VOCAB_SIZE, (2, 17))
    assert torch.allclose(fast(tokens), plain(tokens), atol=1e-5)


def test_repeats_say_again_what_came_a_period_before():
    tokens, targets = repeats(seed=0, batch=50, length=64)
    for row, wanted in zip(tokens, targets, strict=True):
        period = int((wanted == training.IGNORED).sum()) + 1
        assert 4 <= period <= 24
        assert torch.equal(row[period:], row[:-period])
        assert torch.equal(wanted[period - 1 :], row[: 64 - period + 1])
    assert tokens.min() > 1  # no specials


def test_a_row_of_stories_begins_with_a_story_and_holds_no_padding():
    tokens, targets = rows_of_stories(seed=0, batch=8, length=600)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert not (tokens == PAD).any()
    for row in tokens:
        told = [story.strip() for story in decode(row).split("<end>")]
        assert len(told) >= 3
        assert all(story.split()[0] == "The" for story in told)


def test_what_a_step_reads_depends_on_its_number_alone():
    step = TINY.phases[0].steps + 3
    again, other = training.texts_of_step(TINY, step), training.texts_of_step(TINY, step + 1)
    assert torch.equal(training.texts_of_step(TINY, step)[0], again[0])
    assert not torch.equal(again[0], other[0])
    assert again[0].shape == (2, 64)
    assert training.texts_of_step(TINY, step - 4)[0].shape == (8, 32)


def test_the_learning_rate_rises_stays_and_falls():
    rates = [learning_rate(TINY, step) for step in range(TINY.steps)]
    assert rates[0] == pytest.approx(TINY.rate / training.WARMUP)
    assert max(rates) == rates[100] == TINY.rate
    assert 0 < rates[-1] < TINY.rate / 50


def test_a_model_that_does_not_exist_is_refused_with_the_names_of_those_that_do(capsys):
    with pytest.raises(SystemExit, match="2"):
        training.main(["--only", "maxi"])
    said = capsys.readouterr().err
    assert "maxi" in said
    assert "story-g4" in said


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "RUNS", tmp_path / "runs")
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(SystemExit, match="2"):
        training.main(["--only", "mini", "--out", str(taken)])
    assert str(taken) in capsys.readouterr().err


def test_the_command_trains_names_what_it_wrote_and_clears_its_checkpoints(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(training, "RUNS", tmp_path / "runs")
    short = Recipe(TINY.config, (Phase("stories", 2, 2, 32),), rate=1e-3)
    monkeypatch.setattr(training, "RECIPES", {"mini": short})
    assert training.main(["--out", str(tmp_path)]) == 0
    assert "mini: 9,616 parameters, 2 steps" in capsys.readouterr().out
    assert (tmp_path / "mini.safetensors").exists()
    assert list((tmp_path / "runs").iterdir()) == []


def test_an_interruption_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupted)
    assert training.main(["--only", "mini", "--out", str(tmp_path)]) == 130
    assert "goes on from the last checkpoint" in capsys.readouterr().out
