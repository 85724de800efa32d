"""Check that two codes of 4 bits share a byte, and come back from it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import outcome
from course.checks.quantized_cache.rounding import TENSOR, Array, as_array


def draw_nibbles(seed: int) -> Challenge:
    """Draw codes 0 … 15 in one, two and three dimensions."""
    rng = np.random.default_rng(seed)
    shapes = [(2,), (3, 4), (2, 3, 6)]
    codes = [rng.integers(0, 16, shape).astype(np.uint8) for shape in shapes]
    codes[0] = np.array([rng.integers(1, 7), rng.integers(8, 16)], np.uint8)
    return {"codes": codes}


def probe_nibbles(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Pack the codes, unpack them, and pack an odd number of them."""
    packed = [student.pack_int4(torch.from_numpy(codes.copy())) for codes in challenge["codes"]]
    return {
        "packed": [as_array(bytes_) for bytes_ in packed],
        "unpacked": [as_array(student.unpack_int4(bytes_)) for bytes_ in packed],
        "odd": outcome(lambda: student.pack_int4(torch.zeros(2, 3, dtype=torch.uint8))),
    }


def evidence_of_nibbles(challenge: Challenge) -> Any:
    """The form of what `probe_nibbles` records."""
    arrays = [TENSOR] * len(challenge["codes"])
    return {"packed": arrays, "unpacked": arrays, "odd": str}


def pack_by_digits(codes: Array) -> Array:
    """Pack codes (…, n) as bytes (…, n / 2) are written: two hexadecimal digits, the high one first."""
    pairs = codes.reshape(-1, 2).tolist()
    written = [int(f"{second:x}{first:x}", 16) for first, second in pairs]
    return np.array(written, np.uint8).reshape(*codes.shape[:-1], codes.shape[-1] // 2)


def judge_nibbles(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Array], Array]
) -> Verdict:
    """Bytes are those of `truth`, codes (…, n) to bytes (…, n / 2), and give the same codes back."""
    cases = zip(challenge["codes"], evidence["packed"], evidence["unpacked"], strict=True)
    for codes, packed, unpacked in cases:
        wanted = truth(codes)
        for name, got, want in (("pack", packed, wanted), ("unpack", unpacked, codes)):
            if problem := wrong_bytes(name, got, want.shape):
                return failed(f"Codes {codes.shape}: {problem}")
        if (packed != wanted).any():
            at = tuple(np.argwhere(packed != wanted)[0].tolist())
            pair = codes[(*at[:-1], slice(2 * at[-1], 2 * at[-1] + 2))].tolist()
            return failed(
                f"Codes {codes.shape}: the neighbours {pair} share the byte {packed[at]:08b}. The "
                f"first belongs into the low four bits, the second into the high ones."
            )
        if (unpacked != codes).any():
            at = tuple(np.argwhere(unpacked != codes)[0].tolist())
            return failed(
                f"Codes {codes.shape}: the code {codes[at]} at {list(at)} came back as "
                f"{unpacked[at]}, from bytes that are right. Which four bits are yours, and what "
                f"stands in the others?"
            )
    if evidence["odd"] != "ValueError":
        return failed(f"pack_int4 of shape (2, 3): {evidence['odd']}, wanted is ValueError.")
    return passed("Two codes in every byte, and the same codes back.")


def wrong_bytes(name: str, got: Array | str, wanted: tuple[int, ...]) -> str | None:
    """Say what is wrong with the dtype or shape of packed or unpacked codes, if anything."""
    if not isinstance(got, np.ndarray) or got.dtype != np.uint8:
        kind = got.dtype if isinstance(got, np.ndarray) else got
        return f"{name}_int4 gave {kind}, wanted is uint8."
    if got.shape != wanted:
        return (
            f"{name}_int4 gave shape {got.shape}, wanted is {wanted}. Which axis do two neighbours "
            f"stand on?"
        )
    return None


two_codes_share_a_byte = Check(
    "two_codes_share_a_byte",
    ("pack_int4", "unpack_int4"),
    draw_nibbles,
    probe_nibbles,
    judge_nibbles,
    evidence=evidence_of_nibbles,
    truth=pack_by_digits,
)
