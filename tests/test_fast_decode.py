"""The fast decode gives the numbers of the plain one, whatever the heads, rows and lengths."""

import shutil

import pytest
import torch

from course.fast.decode import FastDecoder
from course.minigpt.kv_cache import generate_cached
from course.model import MiniGPT
from course.model.cache import CacheFull
from course.model.config import GPTConfig

TOLERANCE = 1e-4  # float32, logits of a few units
MAX_LEN = 24
ON_CPU = torch.profiler.ProfilerActivity.CPU  # where there is a GPU, more is recorded, and once


def sharp_model(n_kv_heads: int = 2, tied: bool = False) -> MiniGPT:
    """A random model whose attention is far from uniform, so that a wrong key would show."""
    config = GPTConfig(53, 3, 32, 4, n_kv_heads, 44, max_seq_len=64, tie_embeddings=tied)
    model = MiniGPT(config).eval()
    generator = torch.Generator().manual_seed(n_kv_heads)
    for weight in model.parameters():
        weight.normal_(1.0 if weight.dim() == 1 else 0.0, 0.2, generator=generator)
    return model


def tokens_of(model: MiniGPT, batch: int, n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (batch, n), generator=generator)


def assert_follows(decoder: FastDecoder, model: MiniGPT, tokens: torch.Tensor, prompt: int):
    """Logits after the prompt, and after each token more, are those of the whole text, uncached."""
    expected = model(tokens)  # (B, T, V)
    assert expected.std() > 0.3
    got = [decoder.prefill(tokens[:, :prompt])]
    got += [decoder.step(tokens[:, place]) for place in range(prompt, tokens.shape[1])]
    difference = (torch.stack(got, dim=1) - expected[:, prompt - 1 :]).abs().max()
    assert difference < TOLERANCE
    assert len(decoder) == tokens.shape[1]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("n_kv_heads", [4, 2, 1], ids=["MHA", "GQA", "MQA"])
def test_every_step_gives_the_logits_of_the_uncached_model(n_kv_heads, batch):
    model = sharp_model(n_kv_heads)
    decoder = FastDecoder(model, batch, MAX_LEN)
    for prompt in (1, 5, MAX_LEN - 1):  # one after the other: nothing is left of the text before
        assert_follows(decoder, model, tokens_of(model, batch, MAX_LEN, prompt), prompt)


def test_tied_embeddings_work_too():
    model = sharp_model(tied=True)
    assert_follows(FastDecoder(model, 2, MAX_LEN), model, tokens_of(model, 2, 9), 4)


def test_what_is_returned_stays_as_it_is_when_the_next_step_comes():
    model = sharp_model()
    decoder = FastDecoder(model, 1, MAX_LEN)
    first = decoder.prefill(tokens_of(model, 1, 3))
    second = decoder.step(first.argmax(dim=-1))
    kept = second.clone()
    decoder.step(second.argmax(dim=-1))
    assert torch.equal(second, kept)


@pytest.mark.parametrize("batch", [1, 3])
def test_greedy_tokens_are_those_of_generate_cached(batch):
    model = sharp_model()
    decoder = FastDecoder(model, batch, MAX_LEN)
    for prompt in (tokens_of(model, batch, 5), tokens_of(model, batch, 10, seed=1)):
        assert torch.equal(decoder.generate(prompt, 12), generate_cached(model, prompt, 12))


def test_the_shipped_model_tells_the_same_story():
    model = MiniGPT.from_weights("mini")
    from course.world.tokenizer import encode

    prompt = encode("The cat sat")
    told = FastDecoder(model, 1, 40).generate(prompt, 30)
    assert torch.equal(told, generate_cached(model, prompt, 30))


def test_a_text_may_fill_the_cache_to_its_last_place_and_no_further():
    model = sharp_model()
    decoder = FastDecoder(model, 1, 8)
    prompt = tokens_of(model, 1, 5)
    assert torch.equal(decoder.generate(prompt, 4), generate_cached(model, prompt, 4))
    assert len(decoder) == 8
    keys = decoder.keys.clone()
    with pytest.raises(CacheFull, match="all 8 places are taken"):
        decoder.step(torch.tensor([1]))
    assert torch.equal(decoder.keys, keys)
    assert len(decoder) == 8
    with pytest.raises(ValueError, match="n_new must be a whole number from 1 to 4, got 5"):
        decoder.generate(prompt, 5)
    with pytest.raises(CacheFull, match="9 tokens do not fit into 8 places"):
        decoder.prefill(tokens_of(model, 1, 9))


def test_a_resized_decoder_shares_the_weights_and_nothing_else():
    model = sharp_model()
    decoder = FastDecoder(model, 1, MAX_LEN)
    text = tokens_of(model, 1, 6)
    decoder.prefill(text[:, :5])
    other = decoder.resized(batch=3, max_len=12)
    assert other.weights is decoder.weights
    assert len(other) == 0
    assert_follows(other, model, tokens_of(model, 3, 12), 4)
    assert (decoder.step(text[:, 5]) - model(text)[:, -1]).abs().max() < TOLERANCE


def test_reset_forgets():
    model = sharp_model()
    decoder = FastDecoder(model, 1, MAX_LEN)
    decoder.prefill(tokens_of(model, 1, 20))
    decoder.reset()
    assert len(decoder) == 0
    text = tokens_of(model, 1, 3, seed=7)
    logits = [decoder.step(text[:, place]) for place in range(3)]
    assert (torch.stack(logits, 1) - model(text)).abs().max() < TOLERANCE


def test_the_model_stays_as_it_is():
    model = sharp_model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    FastDecoder(model, 1, MAX_LEN).generate(tokens_of(model, 1, 3), 5)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name
        assert weight.is_contiguous(), name


def test_no_shape_and_no_address_depends_on_the_position():
    """What a CUDA graph needs: every step is the same operations on the same memory."""
    model = sharp_model()
    decoder = FastDecoder(model, 1, MAX_LEN)
    decoder.prefill(tokens_of(model, 1, 2))
    fixed = [decoder.keys, decoder.values, decoder.token, decoder.position, decoder.places]
    addresses = [tensor.data_ptr() for tensor in fixed]
    operations = []
    for _ in range(2):
        with torch.profiler.profile(activities=[ON_CPU], record_shapes=True) as profile:
            decoder._decode()
        operations.append([(e.name, str(e.input_shapes)) for e in profile.events()])
        decoder.step(torch.tensor([3]))
    assert operations[0] == operations[1]
    used = [decoder.keys, decoder.values, decoder.token, decoder.position, decoder.places]
    assert addresses == [tensor.data_ptr() for tensor in used]


def test_half_precision_stays_half_precision():
    model = sharp_model().to(torch.bfloat16)
    decoder = FastDecoder(model, 1, MAX_LEN)
    text = tokens_of(model, 1, 6)
    decoder.prefill(text[:, :5])
    logits = decoder.step(text[:, 5])
    assert logits.dtype == decoder.keys.dtype == torch.bfloat16
    assert (logits - model(text)[:, -1]).abs().max() < 0.2  # of logits that reach 3 or so


@pytest.mark.parametrize(
    ("batch", "max_len", "message"), [(0, 8, "batch"), (1, 0, "max_len"), (1, 65, "max_len.*64")]
)
def test_sizes_that_cannot_be_are_refused_by_name(batch, max_len, message):
    with pytest.raises(ValueError, match=message):
        FastDecoder(sharp_model(), batch, max_len)


@pytest.mark.parametrize("shape", [(2, 3), (3,), (1, 0)])
def test_a_prompt_of_other_rows_is_refused(shape):
    decoder = FastDecoder(sharp_model(), 1, MAX_LEN)
    with pytest.raises(ValueError, match=r"prompt must be \(B, P\) = \(1, P\)"):
        decoder.prefill(torch.zeros(shape, dtype=torch.int64))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_the_step_can_be_compiled():
    model = sharp_model()
    assert_follows(FastDecoder(model, 1, MAX_LEN, compile=True), model, tokens_of(model, 1, 9), 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_replayed_graph_gives_the_same_numbers():
    model = sharp_model().to("cuda")
    tokens = tokens_of(model, 2, MAX_LEN).to("cuda")
    assert_follows(FastDecoder(model, 2, MAX_LEN), model, tokens, 5)
