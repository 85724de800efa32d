"""The engine: what the lessons built, put together.

    python -m course.engine "Anna Stone found a red kite ."
    python -m course.engine "Once upon a time" --model HuggingFaceTB/SmolLM2-135M --temperature 0.8
    python -m course.engine --chat --model HuggingFaceTB/SmolLM2-135M-Instruct

    engine = Engine(MiniGPT.from_weights("story"))
    texts = engine.serve(prompts, n_new=60)    # lists of token ids, as `generate_cached` writes them

It uses the pages of lesson 10, read in the parts of lesson 09, the scheduler of lesson 11, and the cached
pass of lesson 03. `write` decodes one conversation alone, with the guesses of lesson 12.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor

from course.fast.layer import FastWeights
from course.minigpt.kv_cache import forward_cached
from course.minigpt.serving import Scheduler
from course.minigpt.speculative import lookup_draft, speculate
from course.model import MiniGPT
from course.model.bounds import check_between
from course.serving.command import run
from course.serving.conversation import GREEDY, Conversation, Sampling
from course.serving.memory import Memory, Running
from course.serving.pages import decode_together
from course.serving.request import Piece

Show = Callable[[list[int]], object]


class Engine:
    """Serves conversations from one pool of blocks. The model's weights must stay as they are: some are
    copied (`FastWeights`).

    Args:
        n_blocks, block_size: the sizes of the pool.
        max_running: how many conversations run at once; the others wait in their order.
        budget: the most tokens that one pass takes, of prompts and answers together.
    """

    def __init__(self, model: MiniGPT, n_blocks=256, block_size=16, max_running=8, budget=256):
        self.model, self.weights = model, FastWeights(model)
        self.memory = Memory(model, n_blocks, block_size)
        self.scheduler, self.max_running = Scheduler(budget, max_running), max_running
        self.queue: deque[Conversation] = deque()
        self.running: dict[int, Running] = {}
        self.ids = count()

    def add(
        self,
        prompt: Sequence[int],
        n_new: int,
        ends: Iterable[int] = (),
        sampling: Sampling = GREEDY,
    ) -> Conversation:
        """Queue a conversation and return it; `step` fills its `out`, up to n_new tokens or the first of
        `ends`. A ValueError names what the model cannot take, or the pool can never hold."""
        settings = {"ends": frozenset(ends), "sampling": sampling}
        self.queue.append(self._conversation(prompt, n_new, **settings))
        return self.queue[-1]

    def serve(self, prompts: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Return n_new tokens for each prompt, decoded greedily; all prompts are checked before any is
        served."""
        conversations = [self._conversation(prompt, n_new) for prompt in prompts]
        self.queue += conversations
        while not all(conversation.done for conversation in conversations):
            self.step()
        return [conversation.out for conversation in conversations]

    def step(self) -> list[tuple[int, int]]:
        """Run one pass; return (id, token) for each conversation that got a token."""
        while self.queue and len(self.running) < self.max_running:
            cache = self.memory.admit(self.queue[0], self.running.values())
            if cache is None:
                break
            request = self.queue.popleft()
            self.scheduler.add(request)
            request.fed = request.reused = len(cache)  # tokens in known blocks are not fed again
            self.running[request.id] = request, cache
        written = self.scheduler.step(self._forward)
        for request, cache in list(self.running.values()):
            if request.done:
                self.memory.remember(request, cache)
                cache.reset()
                del self.running[request.id]
        return written

    def write(self, prompt: Sequence[int], n_new: int, show: Show = lambda new: None) -> list[int]:
        """Return n_new tokens for one prompt while no other is served, with guesses looked up in its own
        text. `show` is called with new tokens as soon as they are final."""
        check_between("running or waiting conversations", len(self.running) + len(self.queue), 0, 0)
        request = self._conversation(prompt, n_new)
        cache = self.memory.admit(request, ())
        whole = torch.tensor(request.prompt, device=self.memory.pool.device)
        known, shown = whole[: len(cache)], len(whole)

        def propose(text: Tensor, k: int) -> Tensor:
            nonlocal shown
            text = torch.cat([known, text])
            show(text[shown:].tolist())
            shown = len(text)
            return lookup_draft(text, k)

        text = speculate(self.model, propose, whole[len(cache) :], n_new, 4, cache)
        show(text[shown - len(known) :].tolist())
        self.memory.remember(request, cache)
        cache.reset()
        return text[-n_new:].tolist()

    def _conversation(self, prompt: Sequence[int], n_new: int, **settings: Any) -> Conversation:
        tokens = torch.tensor([list(prompt)], dtype=torch.int64)
        self.model.check_tokens(tokens)
        check_between("n_new", n_new, 1, self.model.config.max_seq_len - tokens.shape[1])
        conversation = Conversation(next(self.ids), tokens[0].tolist(), n_new, **settings)
        self.memory.check(conversation)
        return conversation

    @torch.inference_mode()
    def _forward(self, pieces: list[Piece]) -> Tensor:
        """Return rows (n, V), of which the largest number stands at the token that follows each piece: so
        the scheduler, which takes the likeliest, takes the token that was chosen. Each chunk of a prompt
        takes a pass of its own; all requests that decode take one."""
        logits: dict[int, Tensor] = {}
        for request, n in pieces:
            if not request.decodes:
                cache = self.running[request.id][1]
                chunk = request.prompt[request.fed : request.fed + n]
                chunk = torch.tensor([chunk], device=self.memory.pool.device)
                logits[request.id] = forward_cached(self.model, chunk, cache)[0, -1]
                self.memory.remember(request, cache)
        decoding = [request for request, _ in pieces if request.decodes]
        if decoding:
            caches = [self.running[request.id][1] for request in decoding]
            rows = decode_together(self.weights, caches, [request.out[-1] for request in decoding])
            logits |= zip((request.id for request in decoding), rows, strict=True)
        return torch.stack([_chosen(request, n, logits[request.id]) for request, n in pieces])


def _chosen(conversation: Conversation, n: int, logits: Tensor) -> Tensor:
    """Return logits (V,) as they are, or with all but a drawn token ruled out."""
    if conversation.sampling.temperature == 0 or n < conversation.left:  # the prompt goes on
        return logits
    token = conversation.choose(logits)
    return torch.full_like(logits, -torch.inf).index_fill(0, token, 0.0)


def main(arguments: list[str] | None = None) -> None:
    """Run the command: see `course/serving/command.py`."""
    run(arguments, Engine)


if __name__ == "__main__":
    main()
