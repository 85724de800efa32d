"""The engine: what the lessons built, put together.

    python -m course.engine "Anna Stone found a red kite ."
    python -m course.engine "Once upon a time" --model HuggingFaceTB/SmolLM2-135M --temperature 0.8
    python -m course.engine --chat --model HuggingFaceTB/SmolLM2-135M-Instruct
    python -m course.engine --serve            chat completions on http://127.0.0.1:8000/v1
    python -m course.engine --mine "The cat"   on the functions of your lessons, where they pass
    python -m course.engine --read 4 "The cat" reads 4 pages of 16 tokens in a step

    engine = Engine(MiniGPT.from_weights("story"))
    texts = engine.serve(prompts, n_new=60)    # lists of token ids, as `generate_cached` writes them

Conversations share the pages of lesson 10, read in the parts of lesson 09, the scheduler of lesson 11,
and the cached pass of lesson 03. One alone is decoded by `FastDecoder`, with the guesses of lesson 12
where they pay, or by lesson 14's reads of some pages.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and "--mine" in sys.argv:  # before anything below takes ours
    from course.mine.everything import take_mine

    take_mine()

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count

import torch
from torch import Tensor

from course.fast.layer import FastWeights
from course.minigpt.kv_cache import forward_cached, kv_cache_bytes
from course.minigpt.serving import Scheduler
from course.model import MiniGPT
from course.model.bounds import check_between
from course.serving.alone import Alone
from course.serving.command import run
from course.serving.conversation import GREEDY, Conversation, Sampling
from course.serving.engine_like import Writer
from course.serving.memory import Memory, Running
from course.serving.pages import DecodeTogether
from course.serving.request import Piece
from course.serving.windowed import Windowed


class Engine:
    """Serves conversations: several from one pool of blocks, one alone faster. The model's matrices
    become views of the engine's (`FastWeights`), so memory holds them once; they must stay as they are.

    Args:
        n_blocks, block_size: the sizes of the pool.
        max_running: how many conversations run at once; the others wait in their order.
        budget: the most tokens that one pass takes, of prompts and answers together.
        read: of a conversation alone, how many pages of 16 tokens each head reads in a step; None: all.
    """

    def __init__(
        self,
        model: MiniGPT,
        n_blocks: int = 256,
        block_size: int = 16,
        max_running: int = 8,
        budget: int = 256,
        read: int | None = None,
    ) -> None:
        self.model, self.weights = model, FastWeights(model, shared=True)
        self.n_blocks, self.block_size = n_blocks, block_size
        self.window = getattr(model.config, "window", None)  # of a published model
        self.budget, self.max_running, self.read = budget, max_running, read
        self.sparse: Writer | None = None
        if read is not None:  # what writes one conversation, of which each step reads some pages
            from course.serving.sparse import Sparse  # the only part that stands on lesson 14

            self.sparse = Sparse(model, self.weights, read)
        self.scheduler = Scheduler(budget, max_running)
        self.queue: deque[Conversation] = deque()
        self.running: dict[int, Running] = {}
        self.ids = count()

    @cached_property
    def memory(self) -> Memory:
        """The pool of blocks, made when conversations first share one."""
        return Memory(self.model, self.n_blocks, self.block_size)

    @cached_property
    def together(self) -> DecodeTogether:
        """What decodes the conversations that share the pool."""
        multiple = 8 if self.memory.pool.keys.is_cuda else 1
        return DecodeTogether(self.weights, self.memory.pool, multiple)

    @cached_property
    def alone(self) -> Writer:
        """What writes one conversation alone."""
        return Alone(self.weights)

    @cached_property
    def windowed(self) -> Writer:
        """What writes one conversation that is longer than the window of the model."""
        return Windowed(self.model, self.window)

    def _exceeds_window(self, conversation: Conversation) -> bool:
        fed = len(conversation.prompt) + conversation.n_new - 1
        return self.window is not None and fed > self.window

    def conversation(
        self,
        prompt: Sequence[int],
        n_new: int,
        ends: Iterable[int] = (),
        sampling: Sampling = GREEDY,
    ) -> Conversation:
        """Make a conversation for `run`, of up to n_new tokens or the first of `ends`. A ValueError names
        what the model cannot take."""
        tokens = torch.tensor([list(prompt)], dtype=torch.int64)
        self.model.check_tokens(tokens)
        check_between("n_new", n_new, 1, self.model.config.max_seq_len - tokens.shape[1])
        settings = {"ends": frozenset(ends), "sampling": sampling}
        return Conversation(next(self.ids), tokens[0].tolist(), n_new, **settings)

    def run(self, conversations: Sequence[Conversation]) -> Iterator[list[tuple[int, int]]]:
        """Answer conversations; yield (id, token) for each token that a pass wrote. A ValueError names
        the first of several that the pool can never hold, before any is answered."""
        if len(conversations) == 1 and not self.queue and not self.running:
            (conversation,) = conversations
            for new in self._writer(conversation).passes(conversation):
                yield [(conversation.id, token) for token in new]
            return
        if self.read is not None:
            raise ValueError("only a conversation alone can read some of its pages")
        self.add(conversations)
        while not all(conversation.done for conversation in conversations):
            yield self.step()

    def _writer(self, conversation: Conversation) -> Writer:
        """Choose what writes a conversation that is alone."""
        if self._exceeds_window(conversation):
            if self.read is not None:
                raise ValueError(f"a text longer than the window of {self.window} reads the window")
            return self.windowed
        return self.alone if self.read is None else self.sparse

    def add(self, conversations: Sequence[Conversation]) -> None:
        """Queue conversations for `step`; a ValueError names the first that the pool can never hold, and
        none is queued."""
        for conversation in conversations:
            if self._exceeds_window(conversation):
                raise ValueError(
                    f"{len(conversation.prompt)} tokens and {conversation.n_new} new ones are more than "
                    f"the window of {self.window}; such a text is written alone"
                )
            self.memory.check(conversation)
        self.queue += conversations

    def leave(self, conversation: Conversation) -> None:
        """Stop answering a conversation: if it runs, it is in one more pass, which frees its blocks."""
        if conversation in self.queue:
            self.queue.remove(conversation)
        elif not conversation.done:
            conversation.cut()

    def clear(self) -> None:
        """Forget all conversations; known prompts stay."""
        for _, cache in self.running.values():
            cache.reset()
        self.queue.clear()
        self.running.clear()
        self.scheduler = Scheduler(self.budget, self.max_running)

    def serve(self, prompts: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Return n_new tokens for each prompt, decoded greedily; all prompts are checked before any is
        served."""
        conversations = [self.conversation(prompt, n_new) for prompt in prompts]
        deque(self.run(conversations), maxlen=0)
        return [conversation.out for conversation in conversations]

    @property
    def cache_bytes(self) -> int:
        """The bytes of keys and values that are held: of used blocks, and of the conversation alone."""
        held = 0
        if "memory" in vars(self):
            pool, weight = self.memory.pool, self.model.embed.weight
            used = (pool.n_blocks - len(pool.allocator)) * pool.block_size
            held += kv_cache_bytes(self.model.config, used, 1, weight.element_size())
        names = ("alone", "windowed", "sparse")
        alone = [writer for name in names if (writer := vars(self).get(name))]
        return held + sum(writer.nbytes for writer in alone)

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
            rows = self.together(caches, [request.out[-1] for request in decoding])
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
