"""Words in, words out: the stories' words for our own models, a checkpoint's tokenizer for others.

model, words = open_model(None)                          the story model
model, words = open_model("HuggingFaceTB/SmolLM2-135M")  or the path of a folder
print(words.decode(words.encode("Anna Stone came in .")))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from course.model import MiniGPT
from course.published.chat import Message, read_chat_template, read_settings
from course.published.checkpoints import folder_of, load
from course.world import tokenizer


class StoryWords:
    """The words of the stories that our own models were trained on; `ends` are tokens that end a text."""

    ends = frozenset({tokenizer.END})

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Raise a ValueError: these models tell stories."""
        raise ValueError("the story models cannot chat; --model names one that can")

    def encode(self, text: str) -> list[int]:
        """Return token ids; a ValueError names a word that no story uses."""
        return tokenizer.encode(text)[0].tolist()

    def decode(self, tokens: Sequence[int]) -> str:
        """Return a text, with a space between any two words."""
        return tokenizer.decode(tokens)


class CheckpointWords:
    """The tokenizer that lies beside a checkpoint, `tokenizer.json`; `ends` as in `StoryWords`.

    Raises:
        ImportError, FileNotFoundError, ValueError: as `read_tokenizer`.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = read_tokenizer(folder)
        # A model that chats ends its turns with another token than its texts: the second file has both.
        files = ("config.json", "generation_config.json")
        ends = [read_settings(folder / name).get("eos_token_id") for name in files]
        lists = [end if isinstance(end, list) else [end] for end in ends if end is not None]
        self.ends = frozenset(chain.from_iterable(lists))
        self._chat = read_chat_template(folder)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a conversation, up to where the model answers, as its template writes it.
        A ValueError says that the model has none, or why it refuses these messages."""
        if self._chat is None:
            raise ValueError("this model has no chat template; --model names one that has")
        return self._tokenizer.encode(self._chat(messages), add_special_tokens=False).ids

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text; a ValueError if there are none."""
        tokens = self._tokenizer.encode(text).ids
        if not tokens:
            raise ValueError(f"nothing to encode: the tokenizer finds no token in {text!r}")
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""
        return self._tokenizer.decode(list(tokens))


Words = StoryWords | CheckpointWords


def read_tokenizer(folder: Path) -> Any:
    """Read a folder's `tokenizer.json`.

    Raises:
        ImportError: without the package `tokenizers`.
        FileNotFoundError: there is no such file, or no config.json.
        ValueError: the file is no tokenizer.
    """
    for name, how in (("config.json", "model"), ("tokenizer.json", "tokenizer")):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder} has no {name}; with transformers: {how}.save_pretrained(folder)"
            )
    try:
        from tokenizers import Tokenizer  # only checkpoints need it
    except ImportError as error:
        raise ImportError(
            "a checkpoint's words need the package tokenizers: pip install tokenizers"
        ) from error
    try:
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises plain Exceptions
        raise ValueError(f"{folder / 'tokenizer.json'} is no tokenizer: {error}") from error


def open_model(path_or_hub_id: str | Path | None, device: str = "cpu") -> tuple[MiniGPT, Words]:
    """Load a model with its words: the story model where nothing is named, else a checkpoint.

    Raises:
        FileNotFoundError, ValueError, ImportError, ConnectionError: as `checkpoints.load`, and where
            the tokenizer cannot be read.
    """
    if path_or_hub_id is None:
        return MiniGPT.from_weights("story", device=device), StoryWords()
    folder = folder_of(path_or_hub_id)
    words = CheckpointWords(folder)
    return load(folder, device=device), words


class Growing:
    """The text of tokens, as it grows. A character may need several tokens, so what ends in half of one
    waits; after a token that ends a text nothing comes.

    Attributes:
        text: what `add` has returned so far.
    """

    def __init__(self, words: Words, tokens: Sequence[int] = ()) -> None:
        self.words, self.tokens, self.text, self.ended = words, list(tokens), "", False

    def add(self, new: Sequence[int]) -> str:
        """Return what new tokens add to the text."""
        for token in new:
            self.ended = self.ended or token in self.words.ends
            if not self.ended:
                self.tokens.append(token)
        text = self.words.decode(self.tokens)
        if not text.startswith(self.text) or text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        added, self.text = text[len(self.text) :], text
        return added

    def rest(self) -> str:
        """Return what waits, where no more tokens come."""
        return self.words.decode(self.tokens)[len(self.text) :]


def printer(words: Words, prompt: Sequence[int]) -> Callable[[Sequence[int]], None]:
    """Print a prompt; what is returned prints what further tokens add to the text."""
    growing = Growing(words, prompt)

    def show(new: Sequence[int]) -> None:
        print(growing.add(new), end="", flush=True)

    show([])
    return show
