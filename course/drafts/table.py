"""Propose tokens by counting which token followed which: a draft that costs almost nothing.

table = NextWords.of_stories(300)
draft = table.propose(text, 4)             # (S,) int64 -> (<= 4,) int64
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from course.model.bounds import check_between
from course.world.stories import tell
from course.world.tokenizer import encode


class NextWords:
    """Proposes the token that most often followed the last few tokens.

    Args:
        texts: the token ids of the texts that are counted.
        longest: the length of the longest context that is counted; where a context was never seen, a
            shorter one decides.

    Raises:
        ValueError: `longest` is below 1.
    """

    def __init__(self, texts: Iterable[Sequence[int]], longest: int = 4) -> None:
        check_between("longest", longest, 1, 100)
        self.longest = longest
        counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for text in texts:
            for end in range(1, len(text)):
                for n in range(1, min(longest, end) + 1):
                    counts[tuple(text[end - n : end])][text[end]] += 1
        self.next = {context: counted.most_common(1)[0][0] for context, counted in counts.items()}

    @classmethod
    def of_stories(cls, n: int, longest: int = 4) -> NextWords:
        """Count n stories; none of them is held out for tests."""
        return cls((encode(tell(seed).text)[0].tolist() for seed in range(n)), longest)

    def propose(self, text: Tensor, n_draft: int) -> Tensor:
        """Propose up to n_draft tokens after text (S,); fewer where its end was never counted.

        Returns:
            (<= n_draft,) int64.
        """
        known = text[-self.longest :].tolist()
        start = len(known)
        for _ in range(n_draft):
            token = self.next_after(known)
            if token is None:
                break
            known.append(token)
        return torch.tensor(known[start:], dtype=torch.int64)

    def next_after(self, known: Sequence[int]) -> int | None:
        """Return the token that followed the longest counted end of `known`, or None."""
        for n in range(min(self.longest, len(known)), 0, -1):
            token = self.next.get(tuple(known[-n:]))
            if token is not None:
                return token
        return None


class NextWordsAndOwn:
    """Proposes what followed the last tokens earlier in the text itself, or else what a table says.

    One object serves one text, which grows from call to call.
    """

    def __init__(self, table: NextWords) -> None:
        self.table, self.in_text, self.seen = table, {}, 0
        self.longest = table.longest

    def propose(self, text: Tensor, n_draft: int) -> Tensor:
        """Propose n_draft tokens after text (S,), as `NextWords.propose` does."""
        known, n = text.tolist(), self.longest
        for end in range(max(n, self.seen), len(known)):
            self.in_text[tuple(known[end - n : end])] = known[end]  # the latest place counts
        self.seen = len(known)
        for _ in range(n_draft):
            token = self.in_text.get(tuple(known[-n:]))
            if token is None:
                token = self.table.next_after(known)
            if token is None:
                break
            known.append(token)
        return torch.tensor(known[len(text) :], dtype=torch.int64)
