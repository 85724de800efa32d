"""RMSNorm written out for a CPU gives what PyTorch's own gives: numbers, gradients and types."""

import pytest
import torch
import torch.nn.functional as F

from course.model.layers import RMSNorm


def norm_of(width: int, dtype: torch.dtype = torch.float32) -> RMSNorm:
    norm = RMSNorm(width, 1e-5)
    with torch.no_grad():
        norm.weight.normal_(generator=torch.Generator().manual_seed(width))
    return norm.to(dtype)


def theirs(norm: RMSNorm, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-3, 1.0, 1e6, 1e25])
@pytest.mark.parametrize("width", [1, 64, 384])
def test_the_numbers_and_the_gradients_are_those_of_pytorch(width, scale):
    torch.manual_seed(width)
    norm, x = norm_of(width), scale * torch.randn(2, 3, width)
    x.requires_grad_(True)
    ours, expected = norm(x), theirs(norm, x)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=0.0)
    if scale <= 1e6:
        back = [torch.autograd.grad(y.sum(), (x, norm.weight)) for y in (ours, expected)]
        torch.testing.assert_close(*back, rtol=1e-3, atol=1e-4 / max(scale, 1e-2))


@pytest.mark.parametrize("of_weight", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("of_x", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_types_are_those_of_pytorch_so_that_a_wrong_one_shows(of_x, of_weight):
    norm, x = norm_of(8, of_weight), torch.randn(2, 8).to(of_x)
    assert norm(x).dtype == theirs(norm, x).dtype


def test_eps_stays_what_it_is_when_a_model_was_in_half_precision():
    norm, x = norm_of(8), 1e-4 * torch.randn(2, 8)
    there_and_back = norm_of(8).to(torch.bfloat16).to(torch.float32)
    there_and_back.weight.data = norm.weight.data
    assert torch.equal(there_and_back(x), norm(x))
