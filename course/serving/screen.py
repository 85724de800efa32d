"""Texts that grow side by side on a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

_UP, _CLEAR = "\x1b[{}A", "\x1b[J"


class Lines:
    """Show the ends of several texts, a line each, redrawn; on no terminal, nothing before the end."""

    def __init__(self, stream: TextIO, n: int) -> None:
        self.stream, self.n, self.drawn = stream, n, False

    def draw(self, texts: Sequence[str]) -> None:
        """Put these texts in the place of those shown."""
        if self.stream.isatty():
            width = shutil.get_terminal_size().columns - 1
            self._put("".join(f"{' '.join(text.split())[-width:]}\n" for text in texts))
            self.drawn = True

    def end(self, texts: Sequence[str]) -> None:
        """Print the whole texts, with an empty line between them, where the lines were."""
        self._put("\n\n".join(texts) + "\n")

    def _put(self, text: str) -> None:
        back = _UP.format(self.n) + _CLEAR if self.drawn else ""
        self.stream.write(back + text)
        self.stream.flush()
