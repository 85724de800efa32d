"""Measure how well a model tells stories, and what it still remembers.

    quality = evaluate(model, held_out(200))

`evaluate` takes anything that turns tokens into logits, so a model with a small, a quantized or a
forgetful cache can be measured in the same way.
"""

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from course.world.stories import Question, Story, tell
from course.world.tokenizer import END, PAD, encode

FAR = 100
"""Tokens: a fact that was said at least so long ago counts as far back."""
TRAINING_SEEDS = 2**40
"""Stories with lower seeds are for training, those from here on for tests."""


def held_out(n: int) -> list[Story]:
    """Tell the first n of the stories that no model was trained on.

    Raises:
        ValueError: n is not at least 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return [tell(TRAINING_SEEDS + i) for i in range(n)]


def evaluate(
    forward: Callable[[Tensor], Tensor], stories: Sequence[Story], batch: int = 25
) -> dict[str, float]:
    """Measure loss and recall on stories.

    Args:
        forward: tokens (B, T) int64 -> logits (B, T, V); no token may see a later one.
        stories: what to read.
        batch: stories per call of `forward`; shorter ones are padded at their end.

    Returns:
        "loss" in nats per token; "perplexity", its exponential; and, for each kind ("surname",
        "place") and distance ("near", "far": at least 100 tokens back), "recall_<kind>_<distance>"
        in 0 … 1 with "questions_<kind>_<distance>", how many there were; also for both kinds
        together, "recall_<distance>". A recall without questions is NaN.
    """
    total_loss, total_tokens = 0.0, 0
    right: dict[str, list[bool]] = {}
    for logits, targets, answers in _read(forward, stories, batch):
        total_loss += F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"
        ).item()
        total_tokens += int((targets != PAD).sum())
        for question, is_right in answers:
            right.setdefault(_kind_and_distance(question), []).append(is_right)
    loss = total_loss / total_tokens
    return {"loss": loss, "perplexity": math.exp(loss), **_recall(right)}


def recall_by_distance(
    forward: Callable[[Tensor], Tensor],
    stories: Sequence[Story],
    edges: Sequence[int],
    batch: int = 25,
) -> list[tuple[float, int]]:
    """Measure recall by how many tokens back a fact was last said.

    Args:
        forward, stories, batch: as of `evaluate`.
        edges: of the distances, rising; [0, 32, 64] are 0 … 31 and 32 … 63 tokens back.

    Returns:
        For each span of distances the part of the questions that were answered right, NaN of none, and
        how many there were.
    """
    right: list[list[bool]] = [[] for _ in edges[1:]]
    for _, _, answers in _read(forward, stories, batch):
        for question, is_right in answers:
            span = bisect(edges, question.distance) - 1
            if 0 <= span < len(right):
                right[span].append(is_right)
    return [(_share(answers), len(answers)) for answers in right]


Answers = list[tuple[Question, bool]]


@torch.no_grad()
def _read(
    forward: Callable[[Tensor], Tensor], stories: Sequence[Story], batch: int
) -> Iterator[tuple[Tensor, Tensor, Answers]]:
    """Read stories in groups; yield logits (B, T-1, V), what followed (B, T-1), and which questions
    were answered right."""
    for start in range(0, len(stories), batch):
        group = stories[start : start + batch]
        tokens = _rows(group)  # (B, T)
        logits = forward(tokens)[:, :-1]  # (B, T-1, V): the last token has nothing to predict
        targets = tokens[:, 1:]  # (B, T-1)
        correct = logits.argmax(dim=-1) == targets  # (B, T-1)
        answers = [
            (question, bool(correct[row, question.answer - 1]))  # logits are about the next token
            for row, story in enumerate(group)
            for question in story.questions
        ]
        yield logits, targets, answers


def _rows(stories: Sequence[Story]) -> Tensor:
    """Encode stories as rows of one length, closed by <end> and filled with <pad>: (B, T) int64."""
    rows = [F.pad(encode(story.text)[0], (0, 1), value=END) for story in stories]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def _kind_and_distance(question: Question) -> str:
    """Name the group in which a question counts, such as "place_far"."""
    return f"{question.kind}_{'far' if question.distance >= FAR else 'near'}"


def _recall(right: dict[str, list[bool]]) -> dict[str, float]:
    """Compute the recall of each group, and of both kinds together, from which answers were right."""
    numbers: dict[str, float] = {}
    for distance in ("near", "far"):
        both = []
        for kind in ("surname", "place"):
            answers = right.get(f"{kind}_{distance}", [])
            numbers[f"recall_{kind}_{distance}"] = _share(answers)
            numbers[f"questions_{kind}_{distance}"] = len(answers)
            both += answers
        numbers[f"recall_{distance}"] = _share(both)
        numbers[f"questions_{distance}"] = len(both)
    return numbers


def _share(answers: list[bool]) -> float:
    """Compute the part of the answers that are right; NaN of none."""
    return sum(answers) / len(answers) if answers else math.nan
