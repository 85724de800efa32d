"""Encode challenges and evidence for the pipe to the student's process: plain data only.

What crosses is None, bool, int, float and str, arrays of them, and lists, tuples and dicts of all
these. A frame is its length, then blocks of bytes, each behind a length of its own: first JSON,
which tells the structure, then one npy block for each array. Lengths are 8 bytes, big-endian.
Nothing is ever unpickled, and whatever a frame claims is checked before it is believed.

This file is also copied to where the student's process runs, beside `student.py`; it imports
nothing but the standard library and NumPy.
"""

from __future__ import annotations

import io
import struct
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from math import prod
from typing import Any

from numpy import dtype, frombuffer, ndarray
from numpy.lib.format import read_array_header_1_0, read_magic, write_array_header_1_0

MAX_DEPTH = 16
MAX_ARRAYS = 20_000
MAX_BYTES = 64 * 2**20
"""Of one frame. The largest challenge of any lesson has 2.3 MB."""
MAX_SIGNS = 200_000
"""Commas and opening brackets in the structure of one frame: so many values it can have at most."""
MAX_DIMENSIONS = 16
MAX_BITS = 4096
"""Of one int; Python reads and writes no more than 4,300 digits."""
LENGTH = struct.Struct(">Q")

_encode_json = JSONEncoder(check_circular=False, separators=(",", ":")).encode
_decode_json = JSONDecoder().decode
_DTYPES = {dtype(code) for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")}
_DTYPES |= {dtype(code).newbyteorder("<") for code in ("f2", "f4", "f8")}


class WireError(ValueError):
    """Something that does not cross the wire; the message says where it stands and what it is."""


def encode(value: Any, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode `value` as one frame.

    Raises:
        WireError: it holds something that is no plain data, or too much of it.
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
    arrays = [_read_array(block) for block in blocks]
    structure = bytes(text)
    # Before they are built: an empty list takes 3 bytes here, and 64 in memory.
    signs = structure.count(b",") + structure.count(b"[") + structure.count(b"{")
    if signs > MAX_SIGNS:
        raise WireError(f"{signs:,} commas and brackets are more than the {MAX_SIGNS:,} allowed")
    try:
        tree = _decode_json(structure.decode("utf-8", "surrogatepass"))
    except (JSONDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise WireError(f"the structure is no JSON: {str(error)[:200]}") from None
    used: list[int] = []
    value = _rebuild(tree, 0, arrays, used)
    if used != list(range(len(arrays))):
        raise WireError(f"{len(arrays)} arrays crossed, and {used[:20]} were placed")
    return value


def frame_length(head: bytes) -> int:
    """Return the bytes of a whole frame, told from its first 8."""
    return LENGTH.size + LENGTH.unpack_from(head)[0]


def _flatten(value: Any, where: str, depth: int, arrays: list[bytes]) -> Any:
    """Write `value` as JSON: an array is {"array": number}, a dict {"dict": …}, a tuple {"tuple": …}."""
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
        arrays.append(_write_array(value, where))
        if len(arrays) > MAX_ARRAYS:
            raise WireError(f"more than {MAX_ARRAYS:,} arrays")
        return {"array": len(arrays) - 1}
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


def _write_array(array: ndarray, where: str) -> bytes:
    if array.dtype not in _DTYPES:
        raise WireError(
            f"{where.lstrip('.') or 'the value'} is an array of {array.dtype}; bool, int and "
            f"float16 … float64 can cross"
        )
    block = io.BytesIO()
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    write_array_header_1_0(block, header)
    return block.getvalue() + array.tobytes()


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


def _read_array(block: memoryview) -> ndarray:
    """Read an npy block, whose header must describe exactly the bytes that follow it."""
    file = io.BytesIO(block)
    try:
        if read_magic(file) != (1, 0):
            raise WireError("an array is not in version 1.0 of npy")
        shape, fortran_order, kind = read_array_header_1_0(file)
    except WireError:
        raise
    except Exception as error:  # NumPy's parser raises whatever a malformed header leads to
        raise WireError(f"an array's header cannot be read: {str(error)[:200]}") from None
    if kind not in _DTYPES or fortran_order:
        raise WireError(f"an array of {kind!s:.100} cannot cross")
    at, size = file.tell(), prod(shape) * kind.itemsize
    plain = len(shape) <= MAX_DIMENSIONS and all(0 <= n < 2**31 for n in shape)
    if not plain or size != len(block) - at:
        raise WireError(
            f"an array claims to be {kind} of shape {shape!s:.200}, in {len(block) - at:,} bytes"
        )
    if size == 0:
        return ndarray(shape, kind)
    return frombuffer(block, kind, offset=at).reshape(shape).copy()


def _rebuild(tree: Any, depth: int, arrays: list[ndarray], used: list[int]) -> Any:
    if depth > MAX_DEPTH:
        raise WireError(f"the structure is more than {MAX_DEPTH} levels deep")
    if tree is None or type(tree) in (bool, int, float, str):
        return tree
    if type(tree) is list:
        return [_rebuild(item, depth + 1, arrays, used) for item in tree]
    ((kind, inner),) = tree.items() if len(tree) == 1 else (("", None),)
    if kind == "array" and type(inner) is int and 0 <= inner < len(arrays):
        used.append(inner)
        return arrays[inner]
    if kind == "tuple" and type(inner) is list:
        return tuple(_rebuild(item, depth + 1, arrays, used) for item in inner)
    if kind == "dict" and type(inner) is dict:
        return {name: _rebuild(item, depth + 1, arrays, used) for name, item in inner.items()}
    raise WireError(f"the structure holds something that is no plain data: {tree!s:.200}")
