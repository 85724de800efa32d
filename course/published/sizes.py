"""Models of random weights to time, chosen for the machine and checked against its memory.

A model must be large enough that its weights outgrow a CPU's caches (or, on a GPU, that reading them
takes longer than starting the kernels), and small enough to wait for. Its weights are random:
how long a step takes does not depend on what they are.

    size = choose_size("cpu")
    print(check_room(size, "cpu", batch=8, context=1024))    # before anything is allocated
    model = build_random(size, "cpu")
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from course.measure.devices import check_device
from course.measure.machine import card
from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.config import GPTConfig
from course.model.rotary import rotary_table

GIB = 2**30


@dataclass(frozen=True)
class Size:
    """A model's sizes and the type of its numbers, under a name."""

    name: str
    config: GPTConfig
    dtype: torch.dtype

    @property
    def parameters(self) -> int:
        """Numbers in the model."""
        c = self.config
        attention = 2 * c.d_model**2 + 2 * c.d_model * c.n_kv_heads * c.head_dim
        layer = attention + 3 * c.d_model * c.d_ff + 2 * c.d_model
        tables = (1 if c.tie_embeddings else 2) * c.vocab_size * c.d_model
        return c.n_layers * layer + c.d_model + tables

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return self.parameters * self.dtype.itemsize

    def bytes_needed(self, batch: int, context: int, n_new: int = 1) -> int:
        """Bound the bytes that decoding takes, generously.

        The weights count twice, for the model and for the fast decoder's own copy
        (`course.fast.decode`); then keys and values, and the largest values on the way.

        Args:
            batch: B, rows decoded together.
            context: S, tokens of each row that the cache holds.
            n_new: T, tokens of each row that go through the model at once.

        Raises:
            ValueError: a size below 1, or a context longer than the model's max_seq_len.
        """
        check_between("batch", batch, 1, 2**31)
        check_between("context", context, 1, self.config.max_seq_len)
        check_between("n_new", n_new, 1, context)
        c = self.config
        cached = 2 * c.n_layers * batch * c.n_kv_heads * context * c.head_dim
        on_the_way = batch * n_new * (8 * c.d_model + 4 * c.d_ff + 2 * c.vocab_size)
        scores = batch * c.n_heads * n_new * context
        return 2 * self.weight_bytes + (cached + on_the_way + 2 * scores) * self.dtype.itemsize


def _llama(vocab: int, layers: int, width: int, heads: int, ff: int, longest: int) -> GPTConfig:
    return GPTConfig(vocab, layers, width, heads, heads, ff, max_seq_len=longest)


SIZES: dict[str, Size] = {
    size.name: size
    for size in (
        Size("tiny", _llama(512, 2, 64, 4, 128, 1024), torch.float32),
        Size("cpu", _llama(2048, 4, 1024, 16, 2816, 4096), torch.float32),
        Size("0.35B", _llama(16384, 24, 1024, 16, 2816, 4096), torch.float16),
        Size("1.3B", _llama(32000, 24, 2048, 16, 5504, 4096), torch.bfloat16),
        Size("6.7B", _llama(32000, 32, 4096, 32, 11008, 4096), torch.bfloat16),
    )
}
"""By name. "tiny" lies far under both roofs: its steps show the price of starting operations."""

# What to take on a GPU with at least this much free memory: from an H200, an A100 (or H100), any.
_FOR_GPUS = ((100 * GIB, "6.7B"), (30 * GIB, "1.3B"), (0, "0.35B"))


def choose_size(device: str | torch.device, free_bytes: int | None = None) -> Size:
    """Choose a model that shows both phases on a device: 4 layers of width 1024 on a CPU, 0.35B
    parameters on a T4 or L4, 1.3B on an A100 or H100, 6.7B on an H200.

    Args:
        device: "cpu", "cuda" or "cuda:1".
        free_bytes: of memory; left out, those that are free on the device now.

    Raises:
        ValueError: no such device here.
        MemoryError: not even the smallest model for such a device fits.
    """
    kind = check_device(device).type
    free = free_memory(device) if free_bytes is None else free_bytes
    name = "cpu" if kind == "cpu" else next(name for needed, name in _FOR_GPUS if free >= needed)
    check_room(SIZES[name], device, batch=1, context=1024, free_bytes=free)
    return SIZES[name]


def check_room(
    size: Size,
    device: str | torch.device,
    batch: int,
    context: int,
    n_new: int = 1,
    free_bytes: int | None = None,
) -> str:
    """Check that a model and its cache fit, before anything is allocated.

    Args:
        batch, context, n_new: as in `Size.bytes_needed`.
        free_bytes: of memory; left out, those that are free on the device now.

    Returns:
        A sentence with the bytes needed and the bytes free.

    Raises:
        ValueError: no such device here, or sizes that cannot be.
        MemoryError: there is not enough; the message names both numbers and says what to do.
    """
    rows = f"{batch} row{'s' if batch > 1 else ''} of {context} tokens"
    needed = size.bytes_needed(batch, context, n_new)
    return check_bytes(f'The model "{size.name}" with {rows}', needed, device, free_bytes)


def check_bytes(
    what: str, needed: int, device: str | torch.device, free_bytes: int | None = None
) -> str:
    """Check that bytes which were added up elsewhere fit; `what` begins the sentence.

    Raises:
        ValueError: no such device here.
        MemoryError: there is not enough.
    """
    device = check_device(device)
    free = free_memory(device) if free_bytes is None else free_bytes
    sentence = f"{what} needs {_gigabytes(needed)} on {device}; {_gigabytes(free)} are free."
    if needed > free:
        raise MemoryError(
            f"{sentence} Nothing was allocated. Take a smaller batch or context, a smaller model "
            f"({', '.join(SIZES)}), or close what else uses the memory, such as other notebooks."
        )
    return sentence


def free_memory(device: str | torch.device) -> int:
    """Return the bytes that are free on a device; on a CPU, those to be had without swapping.

    Raises:
        ValueError: no such device here.
    """
    device = check_device(device)
    if device.type == "cuda":
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reusable  # torch keeps freed memory for later
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        match = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
        if match:
            return int(match[1]) * 1024
    return card().memory // 2  # where the system does not say: it has work of its own


def build_random(size: Size, device: str | torch.device, seed: int = 0) -> MiniGPT:
    """Build a model with random weights, on the device and in its dtype from the start.

    Args:
        seed: the same seed gives the same weights on the same kind of device.

    Raises:
        ValueError: no such device here.
        MemoryError: there is no room for it.
    """
    device = check_device(device)
    check_room(size, device, batch=1, context=1)
    with torch.device("meta"):  # shapes only
        model = MiniGPT(size.config)
    model = model.to(size.dtype).to_empty(device=device)
    config, generator = size.config, torch.Generator(device).manual_seed(seed)
    if config.tie_embeddings:
        model.lm_head.weight = model.embed.weight
    table = rotary_table(config.max_seq_len, config.head_dim, config.rope_theta).to(device)
    for block in model.blocks:
        block.attn.rotary_table = table
    for weight in model.parameters():
        if weight.dim() == 1:
            weight.fill_(1.0)
        else:
            weight.normal_(std=0.02, generator=generator)
    return model.eval()


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.2f} GB"
