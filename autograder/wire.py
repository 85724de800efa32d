"""Encode challenges and evidence for the pipe to the student's process: plain data only.

Plain data are None, bool, int, float and str, arrays of them, and lists, tuples and dicts of all these.

A frame is its length, then blocks of bytes, each preceded by its own length. The first block is JSON with
the structure and each array's dtype and shape; the others are the bytes of the arrays, in their order.
Lengths are 8 bytes, big-endian. Nothing is ever unpickled, and every claim of a frame is checked before
use.

This file is also copied into the view of the student's process, beside `student.py`; it imports
only the standard library and NumPy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from math import prod
from typing import Any

from numpy import dtype, frombuffer, ndarray

MAX_DEPTH = 16
MAX_ARRAYS = 20_000
MAX_BYTES = 64 * 2**20
"""The size of a frame. The largest challenge of any lesson has 2.3 MB."""
MAX_SIGNS = 200_000
"""Commas and opening brackets in the JSON of a frame, and so the most values that it can have."""
MAX_DIMENSIONS = 16
MAX_BITS = 4096
"""The size of an int; Python converts no more than 4,300 digits."""
LENGTH = struct.Struct(">Q")

_encode_json = JSONEncoder(check_circular=False, separators=(",", ":")).encode
_decode_json = JSONDecoder().decode
_CODES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
_NAMES = {dtype(code).newbyteorder("<"): dtype(code).newbyteorder("<").str for code in _CODES}
_DTYPES = {name: kind for kind, name in _NAMES.items()}


class WireError(ValueError):
    """A value that cannot be sent; the message says where it is and what it is."""


def encode(value: Any, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode `value` as one frame.

    Raises:
        WireError: it holds something other than plain data, or too much of it.
    """
    arrays: list[bytes] = []
    text = _encode_json(_flatten(value, "", 0, arrays))
    blocks = [text.encode("utf-8", "surrogatepass"), *arrays]
    body = b"".join(LENGTH.pack(len(block)) + block for block in blocks)
    if len(body) > max_bytes:
        raise WireError(f"{len(body):,} bytes are more than the {max_bytes:,} that may cross")
    return LENGTH.pack(len(body)) + body


def decode(frame: bytes) -> Any:
    """Decode a frame; its arrays are new ones that may be written to.

    Raises:
        WireError: the frame is not one that `encode` writes.
    """
    if len(frame) < LENGTH.size or frame_length(frame) != len(frame):
        raise WireError(f"a frame of {len(frame):,} bytes does not say so")
    text, *blocks = _split(memoryview(frame)[LENGTH.size :])
    structure = bytes(text)
    # Before they are built: an empty list takes 3 bytes here, and 64 in memory.
    signs = structure.count(b",") + structure.count(b"[") + structure.count(b"{")
    if signs > MAX_SIGNS:
        raise WireError(f"{signs:,} commas and brackets are more than the {MAX_SIGNS:,} allowed")
    try:
        tree = _decode_json(structure.decode("utf-8", "surrogatepass"))
    except (JSONDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise WireError(f"the structure is no JSON: {str(error)[:200]}") from None
    left = iter(blocks)
    value = _rebuild(tree, 0, left)
    if (unused := len(list(left))) > 0:
        raise WireError(f"{len(blocks)} arrays crossed, and {unused} were not placed")
    return value


def frame_length(head: bytes) -> int:
    """Return the size of a whole frame in bytes, given its first 8 bytes."""
    return LENGTH.size + LENGTH.unpack_from(head)[0]


def _flatten(value: Any, where: str, depth: int, arrays: list[bytes]) -> Any:
    """Write `value` as JSON: an array is {"array": [dtype, [sizes]]}, a dict {"dict": …}, a tuple
    {"tuple": …}."""
    if depth > MAX_DEPTH:
        raise WireError(f"{where or 'the value'} lies more than {MAX_DEPTH} levels deep")
    kind = type(value)
    if kind is int and value.bit_length() > MAX_BITS:
        raise WireError(
            f"{where.lstrip('.') or 'the value'} is an int of more than {MAX_BITS} bits"
        )
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is ndarray:
        return {"array": _flatten_array(value, where, arrays)}
    if kind is list or kind is tuple:
        items = [_flatten(v, f"{where}[{i}]", depth + 1, arrays) for i, v in enumerate(value)]
        return items if kind is list else {"tuple": items}
    if kind is dict:
        for name in value:
            if type(name) is not str:
                raise WireError(f"{where or 'the value'} has a key that is no str: {name!r:.100}")
        inner = {k: _flatten(v, f"{where}.{k}", depth + 1, arrays) for k, v in value.items()}
        return {"dict": inner}
    raise WireError(
        f"{where.lstrip('.') or 'the value'} is a {kind.__module__}.{kind.__qualname__}, which is "
        f"no plain number, text or array"
    )


def _flatten_array(array: ndarray, where: str, arrays: list[bytes]) -> list[Any]:
    name = _NAMES.get(array.dtype)
    if name is None:
        raise WireError(
            f"{where.lstrip('.') or 'the value'} is an array of {array.dtype}; bool, int and "
            f"float16 … float64 can cross"
        )
    if len(arrays) >= MAX_ARRAYS:
        raise WireError(f"more than {MAX_ARRAYS:,} arrays")
    arrays.append(array.tobytes())
    return [name, list(array.shape)]


def _split(body: memoryview) -> list[memoryview]:
    """Split a frame's body into its blocks, at least one."""
    blocks, at = [], 0
    while at < len(body):
        if len(body) - at < LENGTH.size:
            raise WireError("a frame ends within the length of a block")
        (length,) = LENGTH.unpack_from(body, at)
        at += LENGTH.size
        if length > len(body) - at:
            raise WireError(f"a block of {length:,} bytes stands where {len(body) - at:,} are left")
        blocks.append(body[at : at + length])
        at += length
        if len(blocks) > MAX_ARRAYS + 1:
            raise WireError(f"more than {MAX_ARRAYS:,} arrays")
    if not blocks:
        raise WireError("an empty frame")
    return blocks


def _read_array(claim: list[Any], block: memoryview) -> ndarray:
    """Make an array from a block, if the claim, [dtype, [sizes]], fits its bytes."""
    name, shape = claim if len(claim) == 2 else ("", None)
    kind = _DTYPES.get(name) if type(name) is str else None
    if kind is None or type(shape) is not list or len(shape) > MAX_DIMENSIONS:
        raise WireError(f"an array of {claim!s:.200} cannot cross")
    plain = all(type(size) is int and 0 <= size < 2**31 for size in shape)
    if not plain or prod(shape) * kind.itemsize != len(block):
        raise WireError(
            f"an array claims to be {kind} of shape {shape!s:.200}, in {len(block):,} bytes"
        )
    if len(block) == 0:
        return ndarray(shape, kind)
    return frombuffer(block, kind).reshape(shape).copy()


def _rebuild(tree: Any, depth: int, blocks: Iterator[memoryview]) -> Any:
    """Rebuild the value that `_flatten` wrote; each array takes the next block."""
    if depth > MAX_DEPTH:
        raise WireError(f"the structure is more than {MAX_DEPTH} levels deep")
    if tree is None or type(tree) in (bool, int, float, str):
        return tree
    if type(tree) is list:
        return [_rebuild(item, depth + 1, blocks) for item in tree]
    ((kind, inner),) = tree.items() if len(tree) == 1 else (("", None),)
    if kind == "array" and type(inner) is list:
        block = next(blocks, None)
        if block is None:
            raise WireError("an array that the structure tells of did not cross")
        return _read_array(inner, block)
    if kind == "tuple" and type(inner) is list:
        return tuple(_rebuild(item, depth + 1, blocks) for item in inner)
    if kind == "dict" and type(inner) is dict:
        return {name: _rebuild(item, depth + 1, blocks) for name, item in inner.items()}
    raise WireError(f"the structure holds something that is no plain data: {tree!s:.200}")
