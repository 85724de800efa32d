"""The largest difference of two float32 numbers that count as equal."""

TOLERANCE = 1e-4
"""For float32 logits, cached against uncached. On drawn models right answers stay within 2e-5 of
float64, and the mildest mistake of the museum moves a logit by more than 1e-2 (`make night` prints
both for every check)."""
