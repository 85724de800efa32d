"""The engine: what the lessons built, put together.

    python -m course.engine "Anna Stone found a red kite ."
    python -m course.engine "Once upon a time" --model HuggingFaceTB/SmolLM2-135M

    engine = Engine(MiniGPT.from_weights("story"))
    texts = engine.serve(prompts, n_new=60)    # lists of token ids, as `generate_cached` writes them

It uses the pages of lesson 10, read in the parts of lesson 09, the scheduler of lesson 11, and the cached
pass of lesson 03. `write` decodes one conversation alone, with the guesses of lesson 12.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

import torch
from torch import Tensor

from course.fast.layer import FastWeights
from course.minigpt.kv_cache import forward_cached
from course.minigpt.serving import Scheduler
from course.minigpt.speculative import lookup_draft, speculate
from course.model import MiniGPT
from course.model.bounds import check_between
from course.published.texts import open_model, printer
from course.serving.memory import Memory, Running
from course.serving.pages import decode_together
from course.serving.request import Piece, Request

Show = Callable[[list[int]], object]


class Engine:
    """Serves conversations, decoded greedily, from one pool of blocks. The model's weights must stay as
    they are: some are copied (`FastWeights`).

    Args:
        n_blocks, block_size: the sizes of the pool.
        max_running: how many conversations run at once; the others wait in their order.
        budget: the most tokens that one pass takes, of prompts and answers together.
    """

    def __init__(self, model: MiniGPT, n_blocks=256, block_size=16, max_running=8, budget=256):
        self.model, self.weights = model, FastWeights(model)
        self.memory = Memory(model, n_blocks, block_size)
        self.scheduler, self.max_running = Scheduler(budget, max_running), max_running
        self.queue: deque[Request] = deque()
        self.running: dict[int, Running] = {}
        self.ids = count()

    def add(self, prompt: Sequence[int], n_new: int) -> Request:
        """Queue a conversation and return its request, whose `out` is filled by `step`. A ValueError
        names what the model cannot take, or the pool can never hold."""
        self.queue.append(self._request(prompt, n_new))
        return self.queue[-1]

    def serve(self, prompts: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Return n_new tokens for each prompt; all prompts are checked before any is served."""
        requests = [self._request(prompt, n_new) for prompt in prompts]
        self.queue += requests
        while not all(request.done for request in requests):
            self.step()
        return [request.out for request in requests]

    def step(self) -> list[tuple[int, int]]:
        """Run one pass; return (id, token) for each conversation that got a token."""
        while self.queue and len(self.running) < self.max_running:
            cache = self.memory.admit(self.queue[0], self.running.values())
            if cache is None:
                break
            request = self.queue.popleft()
            self.scheduler.add(request)
            request.fed = len(cache)  # tokens in known blocks are not fed again
            self.running[request.id] = request, cache
        written = self.scheduler.step(self._forward)
        for request, cache in list(self.running.values()):
            if request.done:
                cache.reset()
                del self.running[request.id]
        return written

    def write(self, prompt: Sequence[int], n_new: int, show: Show = lambda new: None) -> list[int]:
        """Return n_new tokens for one prompt while no other is served, with guesses looked up in its own
        text. `show` is called with new tokens as soon as they are final."""
        check_between("running or waiting conversations", len(self.running) + len(self.queue), 0, 0)
        request = self._request(prompt, n_new)
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

    def _request(self, prompt: Sequence[int], n_new: int) -> Request:
        tokens = torch.tensor([list(prompt)], dtype=torch.int64)
        self.model.check_tokens(tokens)
        check_between("n_new", n_new, 1, self.model.config.max_seq_len - tokens.shape[1])
        request = Request(next(self.ids), tokens[0].tolist(), n_new)
        self.memory.check(request)
        return request

    @torch.inference_mode()
    def _forward(self, pieces: list[Piece]) -> Tensor:
        """Return the logits (n, V) after each piece. Each chunk of a prompt takes a pass of its own; all
        requests that decode take one."""
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
        return torch.stack([logits[request.id] for request, _ in pieces])


def main(arguments: list[str] | None = None) -> None:
    """Stream the continuation of one prompt, or answer several together; each up to its end token."""
    parser = argparse.ArgumentParser(prog="python -m course.engine", description=main.__doc__)
    parser.add_argument("prompts", nargs="+", metavar="PROMPT")
    parser.add_argument("--model", metavar="FOLDER-OR-HUB-ID", help="a Llama-family checkpoint")
    parser.add_argument("--new", type=int, default=60, help="tokens to write (60)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda: PyTorch finds no CUDA here")
    try:
        model, words = open_model(options.model, options.device)
        engine, prompts = Engine(model), [words.encode(prompt) for prompt in options.prompts]
        if len(prompts) == 1:
            request = engine.add(prompts.pop(), options.new)  # refuses before anything is printed
            show = printer(words, request.prompt)
            while not request.done and words.ends.isdisjoint(request.out):
                show([token for _, token in engine.step()])
            print()
        answers = engine.serve(prompts, options.new)
        for prompt, out in zip(prompts, answers, strict=True):
            end = next((i for i, token in enumerate(out) if token in words.ends), len(out))
            print(words.decode([*prompt, *out[:end]]))
    except (ValueError, OSError, ImportError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print()
        sys.exit(130)  # as a shell reports Ctrl-C


if __name__ == "__main__":
    main()
