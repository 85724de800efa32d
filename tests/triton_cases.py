"""Try the Triton kernels without a GPU, in a process of its own, and print what came out as JSON.

    TRITON_INTERPRET=1 python tests/triton_cases.py interpret     how far each case is off
    python tests/triton_cases.py compile                          what was compiled, for which GPU

The interpreter has to be asked for before Triton is imported, hence the process of its own.
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings

import torch
from quantized import Case, Drawn, draw, reference, unpack

from course.fast import triton as triton_decode
from course.fast.quantized import Quantized

CASES = {
    "grouped queries": Case(H=4, G=2),
    "one row, one head": Case(B=1, H=1, G=1),
    "several groups for each program": Case(B=1, H=2, G=1, n=151, group=2),
    "groups that fill a block": Case(n=4, group=16),
    "no window": Case(W=0),
    "nothing but the window": Case(n=0, W=4),
    "groups of one token": Case(n=9, group=1),
    "a long window, eight queries a head": Case(B=1, H=8, G=1, D=64, n=3, group=37, W=40),
}
TRIED_WITH_16_BITS = ("grouped queries", "groups that fill a block")  # the interpreter is slow
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def interpret() -> dict[str, float]:
    """Compare every case with attention over the dequantized cache: the largest differences, by case,
    bits and dtype."""
    found = {}
    for name, case in CASES.items():
        for bits in (8, 4):
            drawn = draw(case._replace(bits=bits, D=max(32, case.D)))
            for dtype in DTYPES if name in TRIED_WITH_16_BITS else DTYPES[:1]:
                found[f"{name}, {bits} bits, {str(dtype)[6:]}"] = largest_difference(drawn, dtype)
    drawn = draw(Case(D=32, n=6))
    piece = largest_difference(drawn, torch.float32, cut=4)
    found["a piece of a longer cache, 8 bits, float32"] = piece
    return found


def largest_difference(drawn: Drawn, dtype: torch.dtype, cut: int | None = None) -> float:
    """How far the kernels are off with numbers of a dtype, and of a cache's first `cut` groups."""
    q, window = drawn.q.to(dtype), drawn.window and tuple(part.to(dtype) for part in drawn.window)
    keys, values = (
        Quantized(*(part[:, :, :cut] for part in (codes, scale.to(dtype), zero.to(dtype))), bits)
        for codes, scale, zero, bits in (drawn.keys, drawn.values)
    )
    out = triton_decode.triton_attention(q, keys, values, window)
    assert out.dtype == dtype
    k, v = (
        (zero.double() + scale.double() * unpack(codes, bits).double()).flatten(2, 3)
        for codes, scale, zero, bits in (keys, values)
    )
    if window:
        k, v = torch.cat([k, window[0]], dim=2), torch.cat([v, window[1]], dim=2)
    return (out - reference(drawn._replace(q=q, k=k, v=v))).abs().max().item()


def compile() -> list[str]:
    """Compile both kernels for GPUs that are not here: A100 and H100, H200."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton_decode._kernels()
    pointers = {
        "part_out": "*fp32",
        "part_maximum": "*fp32",
        "part_total": "*fp32",
        "shrink": "fp32",
    }
    done = []
    for capability in (80, 90):
        for bits in (8, 4):
            read = {"R": 4, "D": 128, "GROUP": 64, "BITS": bits, "ROWS": 16, "TOKENS": 64}
            read["HALF"] = True
            join = {"R": 4, "D": 128, "PARTS": 64}
            for function, sizes in ((triton_decode._read_part, read), (triton_decode._join, join)):
                kinds = {}
                for name in inspect.signature(function).parameters:
                    whole = name.endswith("_head") or name in ("n", "per_part", "parts", "W")
                    codes = "*u8" if name.endswith("_codes") else "i32" if whole else "*bf16"
                    kinds[name] = "constexpr" if name in sizes else pointers.get(name, codes)
                source = ASTSource(triton.jit(function), kinds, sizes)
                triton.compile(source, target=GPUTarget("cuda", capability, 32))
                done.append(f"{function.__name__}, {bits} bits, {capability}")
    return done


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({"interpret": interpret, "compile": compile}[sys.argv[1]]()))
