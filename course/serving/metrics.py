"""What a server measures of itself, for Prometheus: the words of lessons 04, 10 and 11, live."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from course.minigpt.prefill_and_decode import latency_metrics
from course.minigpt.serving import goodput
from course.serving.engine_like import EngineLike
from course.serving.service import Client

MAX_TTFT, MAX_GAP = 0.5, 0.05
"""The limits of goodput, in seconds: of TTFT, and of the 99th percentile of the gaps between tokens."""
SECONDS = 60.0
"""Goodput counts answers of so many last seconds."""
TTFT_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ITL_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)


class Metrics:
    """Histograms of latencies, and gauges of an engine, as text for Prometheus.

    Attributes:
        latencies: when each of the last answers was complete, and its latency.
    """

    def __init__(self, engine: EngineLike) -> None:
        self.registry = CollectorRegistry()
        self.latencies: deque = deque(maxlen=10_000)
        self.begun = time.perf_counter()
        there = {"registry": self.registry, "namespace": "second_token"}
        self.ttft = Histogram("ttft_seconds", "Time to first token.", buckets=TTFT_BUCKETS, **there)
        self.itl = Histogram("itl_seconds", "Gaps between tokens.", buckets=ITL_BUCKETS, **there)
        self.tokens = Counter("tokens", "Tokens written.", **there)
        self.reused = Counter("prompt_tokens_reused", "Prompt tokens in known pages.", **there)
        pool = engine.memory.pool
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "pages": ("Blocks of the pool.", lambda: pool.n_blocks),
            "pages_used": (
                "Blocks that hold keys and values, of running conversations or known prompts.",
                lambda: pool.n_blocks - len(pool.allocator),
            ),
            "pages_known": ("Blocks of known prompts.", lambda: len(engine.memory.known)),
            "running": ("Conversations that share passes.", lambda: len(engine.running)),
            "waiting": ("Conversations that wait for a place.", lambda: len(engine.queue)),
            "goodput": (
                f"Answers a second, of the last {SECONDS:.0f} seconds, with TTFT of at most {MAX_TTFT} s "
                f"and the 99th percentile of their gaps at most {MAX_GAP} s.",
                self.goodput,
            ),
        }
        for name, (words, value) in gauges.items():
            Gauge(name, words, **there).set_function(value)

    def finished(self, client: Client) -> None:
        """Count an answer that is written."""
        latency = latency_metrics(client.start, client.stamps)
        self.latencies.append((client.stamps[-1], latency))
        self.ttft.observe(latency.ttft)
        for before, after in pairwise(client.stamps):
            self.itl.observe(after - before)
        self.tokens.inc(len(client.stamps))
        self.reused.inc(client.conversation.reused)

    def goodput(self) -> float:
        """Answers a second within the limits, by lesson 11's function."""
        now = time.perf_counter()
        seconds = min(SECONDS, now - self.begun)
        late = [latency for end, latency in list(self.latencies) if end > now - seconds]
        return goodput(late, seconds, MAX_TTFT, MAX_GAP)

    def text(self) -> bytes:
        """Return all of it in the text format of Prometheus."""
        return generate_latest(self.registry)
