"""What operations do is counted without PyTorch's compiler, which takes seconds to import."""

import ast
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from autograder.lessons.kv_cache.probes import CountedFlops
from lessons import ROOT

COUNTS = """
import sys
import torch
from autograder.lessons.kv_cache.probes import CountedFlops
from course.fast.steps import count_operations
from course.measure.allocations import watch_new_tensors
from course.measure.counting import count_kv_rows
from course.model import MiniGPT

model, tokens = MiniGPT.from_weights("mini"), torch.zeros(1, 4, dtype=torch.long)
with count_kv_rows(model) as rows, watch_new_tensors(tokens) as made, CountedFlops() as counted:
    model(tokens)
operations = count_operations(lambda: model(tokens))
print(rows.rows, made.numbers > 0, counted.flops > 0, operations.kernels > 0)
print("torch._dynamo" in sys.modules)
"""


def test_counting_imports_no_compiler():
    words = [sys.executable, "-c", COUNTS]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["4", "True", "True", "True", "False"]


def test_every_mode_is_one_that_imports_no_compiler():
    modes = {
        path.relative_to(ROOT).as_posix()
        for room in ("course", "autograder")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and "TorchDispatchMode" in map(ast.unparse, node.bases)
    }
    assert modes == {"course/measure/operations.py"}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_flops_are_those_that_pytorch_counts(mode):
    x, weight = torch.randn(2, 3, 8), torch.randn(5, 8)
    q = torch.randn(2, 4, 3, 8)
    with mode(), FlopCounterMode(display=False) as expected, CountedFlops() as counted:
        F.linear(x, weight)
        q @ q.transpose(2, 3)
        torch.einsum("btc,dc->btd", x, weight)
        F.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert counted.flops == expected.get_total_flops() > 0
