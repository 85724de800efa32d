"""Measure drafts against plain decoding: tokens per pass, acceptance and seconds, for the same text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from course.model import MiniGPT

Propose = Callable[[Tensor, int], Tensor]
Speculate = Callable[[MiniGPT, Propose, Tensor, int, int], Tensor]
Generate = Callable[[MiniGPT, Tensor, int], Tensor]


@dataclass
class Tally:
    """What became of one draft's proposals.

    Attributes:
        passes: passes of the model that verifies, those over prompts not counted.
        written: tokens that these passes wrote.
        kept: drafted tokens that were accepted.
        tried: drafted tokens that were compared: those accepted, and the first wrong one of each draft.
        marks: where each new token of the last text is from: "drafted", "corrected" or "bonus", which
            also stands for a token that nobody guessed.
        text: the new tokens of that text.
        speedup: seconds of plain decoding divided by seconds with this draft, for each round.
    """

    passes: int = 0
    written: int = 0
    kept: int = 0
    tried: int = 0
    marks: list[str] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    speedup: list[float] = field(default_factory=list)

    @property
    def per_pass(self) -> float:
        """Tokens per pass."""
        return self.written / self.passes

    @property
    def acceptance(self) -> float:
        """The share of the compared drafted tokens that were accepted."""
        return self.kept / max(self.tried, 1)

    @property
    def faster(self) -> float:
        """The median of the rounds' speedups."""
        return median(self.speedup)

    def add(
        self, proposals: Sequence[tuple[int, list[int]]], text: list[int], n_prompt: int
    ) -> None:
        """Compare proposals, each with the length of the text before it, with the text, and count."""
        self.marks, self.text = ["bonus"], text[n_prompt:]  # the prompt's pass gives one
        for length, draft in proposals:
            right = text[length : length + len(draft)]
            pairs = enumerate(zip(draft, right, strict=False))
            kept = next((place for place, (a, b) in pairs if a != b), len(right))
            self.passes += 1
            self.kept += kept
            self.tried += kept + (kept < len(draft))
            self.marks += ["drafted"] * kept
            if length + kept < len(text):
                self.marks.append("corrected" if kept < len(draft) else "bonus")
        self.written += len(text) - n_prompt - 1


def race(
    model: MiniGPT,
    drafts: Mapping[str, Callable[[], Propose]],
    prompts: Sequence[Tensor],
    n_new: int,
    n_draft: int,
    speculate: Speculate,
    generate: Generate,
    rounds: int = 3,
    report: Callable[[int], object] = lambda n: None,
) -> dict[str, Tally]:
    """Continue each prompt plainly and with each draft, in turn.

    Args:
        drafts: by name, a function that makes a fresh `propose` for each text.
        prompts: (P,) int64 each.
        speculate: lesson 12's function.
        generate: lesson 03's function, called with a batch of one row.
        rounds: how often everything is timed.
        report: called with 1 after each prompt of each round.

    Raises:
        AssertionError: a draft changed a text.
    """
    tallies = {name: Tally() for name in drafts}
    for round_ in range(rounds):
        plain = 0.0
        seconds = dict.fromkeys(drafts, 0.0)
        for prompt in prompts:
            start = time.perf_counter()
            text = generate(model, prompt[None], n_new)[0]
            plain += time.perf_counter() - start
            for name, make in drafts.items():
                propose, proposals = make(), []

                def noted(so_far: Tensor, k: int, propose=propose, proposals=proposals) -> Tensor:
                    draft = propose(so_far, k)
                    proposals.append((len(so_far), draft))
                    return draft

                start = time.perf_counter()
                result = speculate(model, noted, prompt, n_new, n_draft)
                seconds[name] += time.perf_counter() - start
                assert torch.equal(result, text), f"{name} changes the text"
                if round_ == 0:
                    rows = [(length, draft.tolist()) for length, draft in proposals]
                    tallies[name].add(rows, text.tolist(), len(prompt))
            report(1)
        for name, tally in tallies.items():
            tally.speedup.append(plain / seconds[name])
    return tallies
