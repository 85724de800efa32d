"""Fast paths: decode, tiled reads of a quantized cache, storage, Triton."""
