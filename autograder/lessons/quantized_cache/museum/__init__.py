"""Known wrong answers to lesson 07, a file a function; two for the cache."""

from autograder.lessons.quantized_cache.museum import (
    bytes_,
    cache,
    cache_state,
    dequantize,
    packing,
    quantize,
)
from autograder.lessons.quantized_cache.museum.collection import MUSEUM

__all__ = ["MUSEUM", "bytes_", "cache", "cache_state", "dequantize", "packing", "quantize"]
