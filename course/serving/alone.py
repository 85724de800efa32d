"""One conversation, as fast as one can be: on a `FastDecoder`, with guesses where they pay."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import takewhile

import torch
from torch import Tensor

from course.fast.decode import FastDecoder
from course.fast.layer import FastWeights
from course.minigpt.speculative import lookup_draft, verify_greedy
from course.serving.conversation import Conversation

N_DRAFT = 4


class Alone:
    """Writes one conversation after the other. What the last one fed is still there for the next, which
    may repeat its beginning, as each turn of a chat does.

    Attributes:
        decoder: holds the keys and values of the last conversation.
        pace: says whether guesses pay.
    """

    def __init__(self, weights: FastWeights) -> None:
        self.decoder, self.pace = FastDecoder(weights, 1, 1), Pace()
        self.last: Conversation | None = None

    @torch.inference_mode()
    def _begin(self, conversation: Conversation) -> list[int]:
        """Feed a prompt, but for what is held of it, and return the first new token."""
        prompt = list(conversation.prompt)
        held = [*self.last.prompt, *self.last.out][: len(self.decoder)] if self.last else []
        same = takewhile(bool, (a == b for a, b in zip(prompt[:-1], held, strict=False)))
        known = len(list(same))
        decoder = self.decoder.resized(1, len(prompt) + conversation.n_new - 1)
        decoder.adopt(self.decoder, known)
        self.decoder, self.last = decoder, conversation
        conversation.reused = known
        new = self._tensor(prompt[known:])[None]
        logits = decoder.extend(new)[:, -1] if known else decoder.prefill(new)
        conversation.fed = len(prompt)
        conversation.out.append(int(conversation.choose(logits[0])))
        return conversation.out[:]

    def passes(self, conversation: Conversation) -> Iterator[list[int]]:
        """Write an answer; yield the new tokens of each pass."""
        yield self._begin(conversation)
        while not conversation.done:
            yield self._pass(conversation)

    @torch.inference_mode()
    def _pass(self, conversation: Conversation) -> list[int]:
        """Run one pass, with a guess where guesses pay, and return the tokens that it wrote."""
        begin, guess = time.perf_counter(), self._guess(conversation)
        newest = self._tensor(conversation.out[-1:])
        if not len(guess):
            new = [int(conversation.choose(self.decoder.step(newest)[0]))]
        else:
            logits = self.decoder.extend(torch.cat([newest, guess])[None])[0]  # (1 + K, V)
            kept, token = verify_greedy(guess, logits)
            new = [*guess[:kept].tolist(), token]
        end = next((n + 1 for n, token in enumerate(new) if token in conversation.ends), len(new))
        new = new[:end]
        conversation.out += new
        conversation.fed = len(conversation.prompt) + len(conversation.out) - 1
        self.decoder.truncate(conversation.fed)
        self.pace.note(len(guess) > 0, len(new), time.perf_counter() - begin)
        return new

    def _guess(self, conversation: Conversation) -> Tensor:
        """Look up what may come next, in the text so far: (≤ N_DRAFT,) int64, and none if it costs."""
        most = min(N_DRAFT, conversation.n_new - len(conversation.out) - 1)
        if conversation.sampling.temperature > 0 or most < 1 or not self.pace.pays:
            return self._tensor([])
        return lookup_draft(self._tensor([*conversation.prompt, *conversation.out]), most)

    @property
    def nbytes(self) -> int:
        """The bytes of the storage of keys and values."""
        return self.decoder.nbytes()

    def _tensor(self, tokens: Sequence[int]) -> Tensor:
        return torch.tensor(tokens, dtype=torch.int64, device=self.decoder.embed.device)


class Pace:
    """Measures passes with and without guesses; guesses pay while they write more tokens a second.

    A pass over 1 + K tokens takes longer than one over one token, by how much depends on the model and
    the machine; how many guesses are kept depends on the text. So both are measured as the text is
    written, and from time to time tried again.
    """

    trials, again_after, newest = 4, 32, 0.25

    def __init__(self) -> None:
        self.tokens, self.seconds, self.count = ({True: 0.0, False: 0.0} for _ in range(3))
        self.since = 0  # passes since the last with a guess

    @property
    def pays(self) -> bool:
        """Whether the next pass should have a guess."""
        if self.count[False] < self.trials:
            return False
        if self.count[True] < self.trials or self.since >= self.again_after:
            return True
        return self.rate(guessed=True) > self.rate(guessed=False)

    def rate(self, guessed: bool) -> float:
        """Tokens a second of the newest passes of one kind."""
        return self.tokens[guessed] / self.seconds[guessed]

    def note(self, guessed: bool, tokens: int, seconds: float) -> None:
        """Note what a pass wrote, and how long it took. The newest pass of each kind counts a quarter,
        the first one all, and so does a guess after many passes without."""
        first = not self.count[guessed] or (guessed and self.since >= self.again_after)
        weight = 1.0 if first else self.newest
        for sums, value in ((self.tokens, tokens), (self.seconds, seconds)):
            sums[guessed] += weight * (value - sums[guessed])
        self.count[guessed] += 1
        self.since = 0 if guessed else self.since + 1
