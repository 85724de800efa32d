"""RMSNorm of a model is PyTorch's own, and that of fast decode gives its numbers in fewer operations."""

import pytest
import torch
from torch import Tensor

from course.fast.layer import norm_of, normed
from course.model.layers import RMSNorm


def random_norm(width: int, dtype: torch.dtype = torch.float32) -> RMSNorm:
    norm = RMSNorm(width, 1e-5).requires_grad_(False)
    norm.weight.normal_(generator=torch.Generator().manual_seed(width))
    return norm.to(dtype)


def formula(norm: RMSNorm, x: Tensor) -> Tensor:
    """RMSNorm as its paper has it, in float64."""
    wide = x.double()
    return norm.weight.double() * wide / (wide.square().mean(-1, keepdim=True) + norm.eps).sqrt()


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-3, 1.0, 1e6, 1e15])
@pytest.mark.parametrize("width", [1, 64, 384])
def test_both_give_the_numbers_of_the_formula(width, scale):
    torch.manual_seed(width)
    norm, x = random_norm(width), scale * torch.randn(2, 3, width)
    expected = formula(norm, x).float()
    for result in (norm(x), normed(x, norm_of(norm))):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_stay_what_they_are_in_fast_decode(dtype):
    norm, x = random_norm(8, dtype), torch.randn(2, 8, dtype=dtype)
    assert torch.equal(normed(x, norm_of(norm)), norm(x))


@pytest.mark.parametrize("of_x", [torch.float64, torch.bfloat16])
def test_a_cast_too_early_gets_the_warning_of_pytorch(of_x):
    norm, x = random_norm(8), torch.randn(2, 8).to(of_x)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # else this warning comes once a process
    try:
        with pytest.warns(UserWarning, match="Mismatch dtype between input and weight"):
            norm(x)
    finally:
        torch.set_warn_always(always)


def test_fast_decode_has_four_operations_where_pytorch_has_two_dozen():
    norm, x = random_norm(64), torch.randn(1, 1, 64)
    constants, counts = norm_of(norm), []
    for call in (lambda: norm(x), lambda: normed(x, constants)):
        with torch.inference_mode(), torch.profiler.profile() as profile:
            call()
        counts.append(sum(event.name.startswith("aten::") for event in profile.events()))
    assert counts[1] == 4
    assert 20 <= counts[0] <= 28  # 24 with PyTorch 2.13, nested ones included
