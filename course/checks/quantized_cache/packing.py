"""Check that two codes of 4 bits share a byte, and come back from it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.evidence import TENSOR, Array, as_array
from course.checks.recorder import given


def draw_nibbles(seed: int) -> Challenge:
    """Draw codes 0 … 15 in one to four dimensions, some of them many; and bytes, two of one shape."""
    rng = np.random.default_rng(seed)
    shapes = [(2,), (3, 4), (2, 3, 6), (1, 1, 2, 8), (3, 4), (1, 2 * int(rng.integers(260, 300)))]
    codes = [rng.integers(0, 16, shape).astype(np.uint8) for shape in shapes]
    codes[0] = np.array([rng.integers(1, 7), rng.integers(8, 16)], np.uint8)
    shapes = [(1,), (3, 4), (2, 1, 3), (3, 4), (1, int(rng.integers(260, 300)))]
    bytes_ = [rng.integers(0, 256, shape).astype(np.uint8) for shape in shapes]
    bytes_[0] = np.array([16 * int(rng.integers(8, 16)) + int(rng.integers(1, 7))], np.uint8)
    return {"codes": codes, "bytes": bytes_}


def probe_nibbles(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Pack the codes, unpack the bytes, and pack an odd number of codes."""
    packed = [as_array(student.pack_int4(given(codes))) for codes in challenge["codes"]]
    unpacked = [as_array(student.unpack_int4(given(bytes_))) for bytes_ in challenge["bytes"]]
    odd = outcome(lambda: student.pack_int4(torch.zeros(2, 3, dtype=torch.uint8)))
    return {"packed": packed, "unpacked": unpacked, "odd": odd}


def evidence_of_nibbles(challenge: Challenge) -> Any:
    """The form of what `probe_nibbles` records."""
    packed, unpacked = ([TENSOR] * len(challenge[name]) for name in ("codes", "bytes"))
    return {"packed": packed, "unpacked": unpacked, "odd": str}


@check(
    "pack_int4", "unpack_int4", draw=draw_nibbles, probe=probe_nibbles, evidence=evidence_of_nibbles
)
def two_codes_share_a_byte(
    challenge: Challenge, evidence: Evidence, truth: Callable[[str, Array], Array]
) -> Verdict:
    """Codes become the bytes and bytes the codes of `truth`, called with "pack" or "unpack"."""
    for codes, packed in zip(challenge["codes"], evidence["packed"], strict=True):
        if problem := wrong_bytes(codes, packed, truth("pack", codes)):
            return failed(f"Codes {codes.shape}: {problem}")
    for bytes_, codes in zip(challenge["bytes"], evidence["unpacked"], strict=True):
        if problem := wrong_codes(bytes_, codes, truth("unpack", bytes_)):
            return failed(f"Bytes {bytes_.shape}: {problem}")
    if evidence["odd"] != "ValueError":
        return failed(f"pack_int4 of shape (2, 3): {evidence['odd']}, wanted is ValueError.")
    return passed("Two codes in every byte, and the same codes back.")


def wrong_bytes(codes: Array, packed: Array | str, wanted: Array) -> str | None:
    """Say what is wrong with packed codes, if anything."""
    if problem := wrong_form("pack", packed, wanted.shape):
        return problem
    bad = np.argwhere(packed != wanted)
    if not len(bad):
        return None
    at = tuple(bad[0].tolist())
    first, second = codes[(*at[:-1], slice(2 * at[-1], 2 * at[-1] + 2))].tolist()
    byte = int(packed[at])
    if (byte >> 4, byte & 15) == (first, second):
        question = "Which of the two is the first, and which four bits are the low ones?"
    elif {byte >> 4, byte & 15} & {first, second}:
        question = "Which code stands next to it, and by how many bits must that move up?"
    else:
        question = "What becomes of the second code's bits, and of the first one's?"
    return (
        f"the neighbours {first} = {first:04b} and {second} = {second:04b} became the byte "
        f"{byte:08b}; the first belongs into the low four bits, the second into the high ones. "
        f"{question}"
    )


def wrong_codes(bytes_: Array, codes: Array | str, wanted: Array) -> str | None:
    """Say what is wrong with unpacked codes, if anything."""
    if problem := wrong_form("unpack", codes, wanted.shape):
        return problem
    bad = np.argwhere(codes != wanted)
    if not len(bad):
        return None
    at = tuple(bad[0].tolist())
    pair = codes[(*at[:-1], slice(at[-1] // 2 * 2, at[-1] // 2 * 2 + 2))].tolist()
    right = wanted[(*at[:-1], slice(at[-1] // 2 * 2, at[-1] // 2 * 2 + 2))].tolist()
    if pair == right[::-1]:
        question = "Which of the two comes first?"
    elif max(pair) > 15:
        question = "Which four bits are yours, and what stands in the others?"
    else:
        question = "From which byte is each code, and from which four bits of it?"
    byte = int(bytes_[(*at[:-1], at[-1] // 2)])
    return (
        f"the byte {byte:08b} holds the codes {right}; at {list(at[:-1])}, places "
        f"{at[-1] // 2 * 2} and {at[-1] // 2 * 2 + 1}, came {pair}. {question}"
    )


def wrong_form(name: str, got: Array | str, wanted: tuple[int, ...]) -> str | None:
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
