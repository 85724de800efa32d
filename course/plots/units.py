"""Write numbers as people read them beside a picture."""

from __future__ import annotations

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def with_prefix(value: float, unit: str) -> str:
    """Write "91.2 GFLOP/s", with three digits that count."""
    for scale, prefix in PREFIXES:
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def in_digits(value: float) -> str:
    """Write "0.5", "25.3" or "1,063", never powers of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_time(seconds: float) -> str:
    """Write "14.2 ms"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
