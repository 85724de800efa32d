"""The command `python -m course.engine`: continue prompts, hold a conversation, or serve others."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import torch

from course.mine.everything import Called, answers_in_use, in_words
from course.published.texts import Words, open_model, printer
from course.serving.conversation import Conversation, Sampling
from course.serving.engine_like import EngineLike
from course.serving.screen import Lines

LOOKED_AT = 8
"""In so many first passes it is noted which functions of lessons run. Such a look takes time."""


def run(arguments: list[str] | None, make_engine: Callable[..., EngineLike]) -> None:
    """Stream the continuation of prompts, each up to its end token; answer in a conversation; or serve
    chat completions."""
    options = parse(arguments)
    try:
        if options.mine:
            print(in_words(answers_in_use().values(), "\n"), file=sys.stderr)
        sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
        model, words = open_model(options.model, options.device)
        engine = make_engine(model, options.pages, read=options.read)
        if options.serve:
            serve(engine, words, options)
        elif options.chat:
            chat(engine, words, options.new, sampling)
        elif options.prompts:
            prompts = [sys.stdin.read() if text == "-" else text for text in options.prompts]
            continue_all(engine, words, prompts, options.new, sampling)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print()
        sys.exit(130)  # as a shell reports Ctrl-C


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line; what cannot be right ends in one line."""
    parser = argparse.ArgumentParser(prog="python -m course.engine", description=run.__doc__)
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="- reads standard input")
    parser.add_argument("--chat", action="store_true", help="talk with a model, a line each turn")
    parser.add_argument("--serve", action="store_true", help="answer clients of chat completions")
    parser.add_argument(
        "--mine", action="store_true", help="take the functions of your lessons that pass"
    )
    parser.add_argument(
        "--model", metavar="FOLDER-OR-HUB-ID", help="a checkpoint (the story model)"
    )
    parser.add_argument("--new", type=int, default=60, metavar="N", help="tokens to write (60)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest (0)")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="0 is all tokens (0)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="probability (1)")
    parser.add_argument("--seed", type=int, help="draws the same text again")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    pages = "blocks of 16 tokens that several conversations share (256)"
    parser.add_argument("--pages", type=int, default=256, metavar="N", help=pages)
    read = "pages of 16 tokens that a head reads in a step, of one text (all)"
    parser.add_argument("--read", type=int, metavar="N", help=read)
    parser.add_argument(
        "--host", default="127.0.0.1", help="of --serve: this machine alone (127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=8000, help="of --serve (8000)")
    options = parser.parse_args(arguments)
    tasks = bool(options.prompts) + options.chat + options.serve
    if tasks > 1 or (tasks == 0 and not options.mine):
        sys.exit("name prompts, or --chat, or --serve, one of them: python -m course.engine --help")
    for name in ("new", "pages", "read"):
        if (value := getattr(options, name)) is not None and value < 1:
            sys.exit(f"--{name} must be at least 1, got {value}")
    if options.read and (options.serve or len(options.prompts) > 1):
        sys.exit("--read is for one text or --chat: several share passes that read all pages")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda: PyTorch finds no CUDA here")
    return options


def serve(engine: EngineLike, words: Words, options: argparse.Namespace) -> None:
    """Serve clients until Ctrl-C."""
    try:
        from course.serving import server
    except ImportError as error:
        raise ImportError(f"--serve needs {error.name}: pip install '.[serve]'") from error
    name = Path(options.model).name if options.model else "story"
    server.serve(engine, words, name, options.host, options.port)


def continue_all(
    engine: EngineLike, words: Words, prompts: Sequence[str], n_new: int, sampling: Sampling
) -> None:
    """Continue all prompts at once: one streams, of several each has a line on a terminal."""
    asked = [begin(engine, words, words.encode(prompt), n_new, sampling) for prompt in prompts]
    statistics = Statistics(engine)
    if len(asked) == 1:
        show = printer(words, asked[0].prompt)
        for new in statistics.steps(asked):
            show([token for _, token in new])
        print()
    else:
        lines = Lines(sys.stdout, len(asked))
        try:
            for _ in statistics.steps(asked):
                lines.draw([text_of(words, one) for one in asked])
        except KeyboardInterrupt:
            lines.end([text_of(words, one) for one in asked])  # what was written
            raise
        lines.end([text_of(words, one) for one in asked])
    statistics.print(asked)


def chat(engine: EngineLike, words: Words, n_new: int, sampling: Sampling) -> None:
    """Answer each line of standard input, until it ends. Keys and values of earlier turns are kept."""
    messages = []
    words.encode_chat([{"role": "user", "content": "Hello"}])  # refuses before anybody types
    while True:
        try:
            said = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        messages.append({"role": "user", "content": said})
        asked = begin(engine, words, words.encode_chat(messages), n_new, sampling)
        statistics, show = Statistics(engine), printer(words, [])
        for new in statistics.steps([asked]):
            show([token for _, token in new])
        print()
        statistics.print([asked])
        answer = [token for token in asked.out if token not in words.ends]
        messages.append({"role": "assistant", "content": words.decode(answer)})


def begin(
    engine: EngineLike, words: Words, prompt: Sequence[int], n_new: int, sampling: Sampling
) -> Conversation:
    """Begin a conversation; a ValueError says that the prompt is too long with what is to be written."""
    most = engine.model.config.max_seq_len
    if len(prompt) + n_new > most:
        raise ValueError(
            f"{len(prompt)} tokens and --new {n_new} are more than the {most} that the model reads"
        )
    return engine.conversation(prompt, n_new, words.ends, sampling)


def text_of(words: Words, conversation: Conversation) -> str:
    """Return a prompt and its answer so far, without the token that ended it."""
    out = [token for token in conversation.out if token not in words.ends]
    return words.decode([*conversation.prompt, *out])


class Statistics:
    """Count and time what an engine writes, and print it in one line to standard error."""

    def __init__(self, engine: EngineLike) -> None:
        self.engine, self.bytes, self.called = engine, 0, Called()
        self.begin, self.first, self.end = time.perf_counter(), 0.0, 0.0

    def steps(self, asked: Sequence[Conversation]) -> Iterator[list[tuple[int, int]]]:
        """Run passes until all are answered, and yield what each wrote."""
        passes = self.engine.run(asked)
        for number in count():
            with self.called if number < LOOKED_AT else nullcontext():
                new = next(passes, None)
            if new is None:
                return
            self.end = time.perf_counter()
            self.first = self.first or (self.end if new else 0.0)
            self.bytes = max(self.bytes, self.engine.cache_bytes)
            yield new

    def print(self, asked: Sequence[Conversation]) -> None:
        """Print tokens a second, the time to the first token, the memory of keys and values, and which
        functions of lessons ran."""
        n = sum(len(one.out) for one in asked)
        prompt, reused = sum(len(one.prompt) for one in asked), sum(one.reused for one in asked)
        print(
            f"[{n} tokens, {n / (self.end - self.begin):.0f} a second, the first after "
            f"{1e3 * (self.first - self.begin):.0f} ms; {reused} of {prompt} prompt tokens reused; "
            f"{self.bytes / 1e6:.1f} MB of keys and values]\n"
            f"[of the lessons: {in_words(self.called.answers, ' · ')}]",
            file=sys.stderr,
        )
