"""The Triton kernels give what attention over the dequantized cache gives; without Triton they say so.

They run in Triton's interpreter, on a CPU, and are compiled for GPUs that are not here. On a machine
with a GPU they run there as well. Triton is large and no part of any extra: where it is missing,
these tests are skipped.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch
from quantized import Case, draw, unpack

from course.fast import triton as triton_decode
from course.fast.quantized import Quantized
from course.fast.storage import Window
from course.fast.tiled_read import tiled_attention
from course.fast.triton import triton_attention
from lessons import ROOT

TOLERANCES = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 3e-2}  # of numbers around 1
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed: pip install triton (Linux, 1 GB)",
)


def run_cases(what: str, **environment: str):
    """Run triton_cases.py in a process of its own: what its last line says."""
    done = subprocess.run(
        [sys.executable, "tests/triton_cases.py", what],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@needs_triton
def test_they_are_right_in_the_interpreter():
    found = run_cases("interpret", TRITON_INTERPRET="1")
    assert len(found) == 8 * 2 + 2 * 2 * 2 + 1
    wrong = {name: off for name, off in found.items() if not off <= TOLERANCES[name.split()[-1]]}
    assert wrong == {}


@pytest.mark.slow
@needs_triton
def test_they_compile_for_gpus():
    """The interpreter once took a name with two types, at which the compiler stopped."""
    assert len(run_cases("compile", TRITON_INTERPRET="0")) == 8


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_right_on_a_gpu(bits, dtype):
    drawn = draw(Case(bits, B=2, H=8, G=2, D=128, n=100, group=64, W=70))
    q, *rest = (_to(part, dtype) for part in drawn[:4])
    out = triton_attention(q, *rest)
    exact = [_to(part, torch.float32) for part in (q, *rest)]
    want = tiled_attention(*exact, unpack=lambda c: unpack(c.cpu(), bits).cuda() if bits < 8 else c)
    assert (out - want).abs().max() <= TOLERANCES[str(dtype)[6:]]


def _to(part: torch.Tensor | Quantized | Window, dtype: torch.dtype):
    """Copy a tensor, or the tensors of a tuple, to the GPU; numbers, not codes, in that dtype."""
    if isinstance(part, torch.Tensor):
        return part.cuda() if part.dtype == torch.uint8 else part.to("cuda", dtype)
    if isinstance(part, Quantized):
        return Quantized(*(_to(each, dtype) for each in part[:3]), part.bits)
    return tuple(_to(each, dtype) for each in part)


def test_without_triton_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    triton_decode._kernels.cache_clear()
    with pytest.raises(ImportError, match="pip install triton"):
        triton_attention(*draw(Case())[:4])


def test_on_a_cpu_it_names_the_read_that_runs_there(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="take tiled_attention"):
        triton_attention(*draw(Case())[:4])


@pytest.mark.parametrize(
    "case", [Case(D=12), Case(D=8), Case(bits=4, D=16), Case(bits=2, D=64)], ids=str
)
def test_bits_and_widths_that_the_kernels_do_not_have_are_refused(case):
    with pytest.raises(ValueError, match="codes of 8 or 4 bits"):
        triton_attention(*draw(case)[:4])


@pytest.mark.parametrize("name", ["keys", "values"])
def test_codes_that_do_not_have_the_bits_that_they_claim_are_refused(name):
    drawn = draw(Case(D=32))
    wrong = drawn._replace(**{name: getattr(drawn, name)._replace(bits=4)})
    with pytest.raises(ValueError, match="codes of 8 or 4 bits"):
        triton_attention(*wrong[:4])
