"""What a student's process says of itself is a claim: whoever makes one up loses the point."""

import pytest
from submissions import Desk, answers, opening, short

pytestmark = pytest.mark.slow


@pytest.fixture
def naive(desks) -> Desk:
    return desks("02-naive-decode")


@pytest.fixture
def kv_cache(desks) -> Desk:
    return desks("03-kv-cache")


@pytest.fixture
def phases(desks) -> Desk:
    return desks("04-prefill-and-decode")


def lost(result) -> dict[str, str]:
    """Messages of the questions without full points."""
    return {answer.check: answer.message for answer in result.answers if answer.score < 1}


FEEDS_EVERYTHING_AGAIN = """
def generate_cached(model, prompt, n_new, cache=None):
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    B, P = prompt.shape
    needed = P + n_new - 1 if n_new else 0
    if cache is None:
        weight = model.embed.weight
        cache = KVCache(model.config, B, needed + 1, dtype=weight.dtype, device=weight.device)
    start, text = len(cache), prompt.clone()
    if start + needed > cache.max_len:
        raise CacheFull("full")
    for _ in range(n_new):
        cache.truncate(start)
        new = forward_cached(model, text, cache)[:, -1].argmax(-1, keepdim=True)
        text = torch.cat([text, new], dim=1)
    claim(B, P, n_new)
    return text
"""


def test_work_that_was_done_again_is_seen_although_the_counts_are_forged(kv_cache):
    """Feeding everything again for each token gives the right text. The counts that would tell are
    overwritten with those of an honest solution."""
    forgery = (
        "from course.measure.counting import KVRowCount\n"
        "from torch.utils.flop_counter import flop_registry\n"
        "claimed = []\n"
        "def claim(B, P, n_new):\n"
        "    claimed[:] = [B * P] + [B] * (n_new - 1) if n_new else []\n"
        "def begin(self, counted):\n"
        "    claimed.clear()\n"
        "    self.counted = counted\n"
        "def rows(self):\n"
        "    return [list(claimed) for _ in self.counted]\n"
        "KVRowCount.by_layer = property(rows, begin)\n"
        "flop_registry.clear()\n"
    )
    result = kv_cache.judge(
        opening(kv_cache.lesson, forgery, generate_cached=FEEDS_EVERYTHING_AGAIN)
    )
    (message,) = lost(result).values()
    assert "no_row_is_computed_twice" in lost(result)
    assert message.startswith("A cache in which all keys and values are exchanged")


def test_without_the_forgery_the_counts_tell(kv_cache):
    honest = f"def claim(*_): pass\n{FEEDS_EVERYTHING_AGAIN}"
    result = kv_cache.judge(short(kv_cache.lesson, generate_cached=honest))
    ((check, message),) = lost(result).items()
    assert check == "no_row_is_computed_twice"
    assert "rows of each pass: [" in message


KEEPS_WHAT_IT_COMPUTED = """
from course.minigpt.mini_gpt import split_heads, merge_heads
import torch.nn.functional as F

def generate_naive(model, prompt, n_new):
    if type(n_new) is not int or n_new < 0:
        raise ValueError(f"n_new {n_new}")
    if prompt.shape[1] < 1 or prompt.shape[1] + n_new > model.config.max_seq_len:
        raise ValueError(f"{n_new} new tokens, {model.config.max_seq_len} places")
    B, P = prompt.shape
    text, new, kept = prompt.clone(), prompt, [None] * len(model.blocks)
    for _ in range(n_new):
        start = text.shape[1] - new.shape[1]
        positions = torch.arange(start, text.shape[1], device=text.device)
        x = model.embed(new)
        for i, block in enumerate(model.blocks):
            attn, y = block.attn, block.attn_norm(x)
            q = attn.rotate(split_heads(attn.wq(y), attn.n_heads), positions)
            k = attn.rotate(split_heads(attn.wk(y), attn.n_kv_heads), positions)
            v = split_heads(attn.wv(y), attn.n_kv_heads)
            if kept[i] is not None:
                k, v = torch.cat([kept[i][0], k], 2), torch.cat([kept[i][1], v], 2)
            kept[i] = k, v
            group = attn.n_heads // attn.n_kv_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            T, S = q.shape[2], k.shape[2]
            mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
            x = x + attn.wo(merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))
            x = x + block.mlp(block.mlp_norm(x))
        new = model.lm_head(model.norm(x))[:, -1].argmax(-1, keepdim=True)
        text = torch.cat([text, new], dim=1)
    claim(B, P, n_new)
    return text
"""


def test_work_that_was_not_done_is_seen_although_the_counts_are_forged(naive):
    """A cache where each step should read everything, and counts as if it had."""
    forgery = (
        "from contextlib import contextmanager\n"
        "from types import SimpleNamespace\n"
        "from course.checks.naive_decode import generation as probes\n"
        "claimed = [0]\n"
        "def claim(B, P, n_new):\n"
        "    claimed[:] = [B * (P + step) for step in range(n_new)]\n"
        "@contextmanager\n"
        "def count(model):\n"
        "    claimed.clear()\n"
        "    yield SimpleNamespace(by_layer=[claimed] * len(model.blocks))\n"
        "probes.count_kv_rows = count\n"
    )
    result = naive.judge(opening(naive.lesson, forgery, generate_naive=KEEPS_WHAT_IT_COMPUTED))
    ((check, message),) = lost(result).items()
    assert check == "each_step_reads_everything"
    assert message.startswith("A model whose weights are exchanged")


RIGHT_CACHE = """
import torch
from torch import Tensor
from types import SimpleNamespace
from course.checks import cache_operations, kv_cache
from course.model.cache import CacheFull, check_block, check_cache_sizes
from course.model.bounds import check_between
from course.model.config import GPTConfig
"""


@pytest.mark.parametrize(
    ("check", "bug"),
    [
        (
            "full_cache_changes_nothing",
            ("if end > self.max_len:", "if end > self.max_len and self.length == 7:"),
        ),
        ("cache_can_go_back", ("self.length = n", "self.length = max(n - 1, 0)")),
    ],
)
def test_known_answers_to_known_series_of_operations_are_not_enough(kv_cache, check, bug):
    """The visible probes are no secret, so what they find at the notebook's seed can be written down."""
    cache = answers(kv_cache.lesson)["KVCache"]
    forgery = (
        f"{RIGHT_CACHE}\n{cache}\nchallenge = kv_cache.{check}.challenge(0)\n"
        f"known = kv_cache.{check}.probe(SimpleNamespace(KVCache=KVCache), challenge)\n"
        "known = {len(records): records for records in known['series']}\n"
        "cache_operations.run = lambda operations, handling: known.get(len(operations), [])\n"
    )
    assert bug[0] in cache
    result = kv_cache.judge(opening(kv_cache.lesson, forgery, KVCache=cache.replace(*bug)))
    assert lost(result)[check].startswith("A cache of 9 places")
    # The forgery ran: other series got nothing, or one of the same length the records of this one.
    others = lost(result)["cache_returns_what_it_was_given"]
    assert "did not come back" in others or "a new one: then len() of another cache" in others


FORGES_PASSES = """
from contextlib import contextmanager
from course.checks.prefill_and_decode import chunks as a, streaming as b
claims = []
class Claimed(list):
    def __iter__(self): return iter(claims.pop(0) if claims else [])
@contextmanager
def count_passes(model):
    claims[:] = [] if lazy else [[]]
    yield Claimed() if lazy else claims[0]
a.count_passes = b.count_passes = count_passes
"""


def test_chunks_that_were_not_fed_are_seen_although_the_passes_are_forged(phases):
    whole = """
def prefill(model, prompt, cache, chunk_size=256):
    P = prompt.shape[1]
    if chunk_size < 1: raise ValueError
    if len(cache) + P > cache.max_len: raise CacheFull
    for claim in claims[:1]:
        claim[:] = [min(chunk_size, P - done) for done in range(0, P, chunk_size)]
    claims.clear()
    return forward_cached(model, prompt, cache)[:, -1]
"""
    result = phases.judge(opening(phases.lesson, "lazy = False", FORGES_PASSES, prefill=whole))
    assert lost(result)["every_chunk_size_gives_the_same_logits"].startswith(
        "A model whose embeddings change before every forward pass"
    )


def test_tokens_that_were_computed_too_early_are_seen_although_the_passes_are_forged(phases):
    eager = f"""{answers(phases.lesson)["stream"]}

honest = stream
def stream(model, prompt, n_new, cache, chunk_size=256):
    P = prompt.shape[1]
    claims[:] = [[], *([P] + [1] * step for step in range(n_new)), [P] + [1] * (n_new - 1)]
    if chunk_size == 256:  # left out, and asked for the first token's passes alone
        claims[:] = [[P]]
    return iter(list(honest(model, prompt, n_new, cache, chunk_size)))
"""
    result = phases.judge(opening(phases.lesson, "lazy = True", FORGES_PASSES, stream=eager))
    assert "no_step_before_it_is_asked_for" in lost(result)


@pytest.fixture
def gqa(desks) -> Desk:
    return desks("06-gqa")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(
            "    kind, n = q.dtype, q.shape[1] // k.shape[1]\n"
            "    q, k, v = (x.float() if kind is torch.bfloat16 else x for x in (q, k, v))\n"
            "    K, V = (np.repeat(x.numpy(), n, 1) for x in (k, v))\n"
            "    scores = q.numpy() @ K.swapaxes(2, 3) / q.shape[3] ** 0.5\n"
            "    if mask is not None: scores = np.where(mask.numpy(), scores, -np.inf)\n"
            "    e = np.exp(scores - scores.max(3, keepdims=True))\n"
            "    return torch.from_numpy(e / e.sum(3, keepdims=True) @ V).to(kind)\n",
            "no operation of PyTorch read",
            id="computed by NumPy",
        ),
        pytest.param(
            "    B, H, T, D = q.shape\n"
            "    if q.dtype is not torch.float32 or H > 16 or k.shape[2] > 200:\n"
            "        k, v = (x.repeat_interleave(H // k.shape[1], 1) for x in (k, v))\n"
            "        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n"
            "    wide = [kept[:B, :H, :k.shape[2], :D] for kept in KEPT]\n"
            "    for place, x in zip(wide, (k, v)):\n"
            "        for h in range(H): place[:, h] = x[:, h // (H // k.shape[1])]\n"
            "    return F.scaled_dot_product_attention(q, *wide, attn_mask=mask)\n",
            "into new tensors you write",
            id="copied into tensors made before",
        ),
    ],
)
def test_a_copy_is_seen_where_no_operation_makes_it(gqa, body, told):
    given = "import numpy as np\nimport torch\nimport torch.nn.functional as F\n"
    kept = "KEPT = torch.zeros(2, 3, 16, 200, 128)\n"
    wrong = f"{given}{kept}def grouped_attention(q, k, v, mask=None):\n{body}"
    ((check, message),) = lost(gqa.judge(short(gqa.lesson, grouped_attention=wrong))).items()
    assert check == "nothing_is_expanded"
    assert told in message
