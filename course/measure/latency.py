"""The latency of one stream of tokens, and a check of the times that it is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import NamedTuple


class Latency(NamedTuple):
    """The latency of one stream, in seconds.

    Attributes:
        ttft: time to first token: from the request to the first token.
        itl_mean, itl_p50, itl_p99: mean, median and 99th percentile of the inter-token latency, the
            gaps between neighbouring tokens. None where there is only one token, so no gap.
        tokens_per_second: the speed of the decode phase; None where there is only one token.
    """

    ttft: float
    itl_mean: float | None
    itl_p50: float | None
    itl_p99: float | None
    tokens_per_second: float | None


def check_stamps(start: float, stamps: Sequence[float]) -> None:
    """Check that these can be the times of one stream; a ValueError names the one that cannot.

    Args:
        start: the time of the request, in seconds.
        stamps: the time of each token: at least one, none before `start` or before its predecessor,
            and not all the same.
    """
    if len(stamps) == 0:
        raise ValueError("stamps is empty: a stream without tokens has no latency")
    times = [float(start), *map(float, stamps)]
    if not all(map(isfinite, times)):
        raise ValueError(f"start and stamps must be finite numbers, got {times}")
    for number, (before, after) in enumerate(pairwise(times)):
        if after < before:
            raise ValueError(
                f"time goes back: stamps[{number}] is {after}, and before it comes {before}"
            )
    if len(stamps) > 1 and times[-1] == times[1]:
        raise ValueError(f"all {len(stamps)} stamps are {times[1]}: the clock is too coarse")
