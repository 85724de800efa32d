"""Wrong answers to `WindowedKVCache`: when it is full, and how far back it goes."""

from autograder.lessons.sliding_window.museum import MUSEUM

bug, patch = MUSEUM.section("WindowedKVCache", check="refusal_and_return")
GONE = "if not torch.isin(needed, self.numbers).all():"
patch(
    "full_when_the_ring_is_full",
    "capacity",
    "a cache that is full when its ring is",
    "The places are counted, and not the text.",
    ("> self.max_len:", "> len(self.numbers):"),
)
patch(
    "never_full",
    "capacity",
    "a cache that takes tokens beyond max_len",
    "A ring never ends.",
    ("if self.length + k.shape[2] > self.max_len:", "if False:"),
)
patch(
    "last_token_refused",
    "capacity",
    "a cache that refuses its last token",
    "At least, and not more than.",
    ("> self.max_len:", ">= self.max_len:"),
)
patch(
    "goes_back_over_what_is_gone",
    "writes",
    "a cache that goes back to where its rows are gone",
    "As in lesson 03, a length is enough.",
    (GONE, "if False:"),
)
patch(
    "never_goes_back",
    "capacity",
    "a cache that goes back no more once a row is overwritten",
    "Whatever was overwritten is taken to be needed.",
    (GONE, "if len(self) > len(self.numbers) and n < len(self):"),
)
patch(
    "goes_back_by_one_too_few",
    "off by one",
    "a cache that asks for one row more than the window needs",
    "The window's W tokens before n, and n besides.",
    ("before > n - self.window", "before >= n - self.window"),
)
patch(
    "goes_back_by_one_too_many",
    "off by one",
    "a cache that goes back to where one row of the window is gone",
    "W - 2 tokens before n.",
    ("before > n - self.window", "before > n - self.window + 1"),
)
patch(
    "goes_back_without_sinks",
    "writes",
    "a cache that asks for the window's rows where the sinks would do",
    "All tokens up to n are asked for.",
    ("before[(before < self.n_sinks) | (before > n - self.window)]", "before"),
)
patch(
    "goes_back_and_forgets_all",
    "state",
    "a cache that forgets every row when it goes back",
    "The numbers are cleared, all of them.",
    ("self.numbers[self.numbers >= n] = -1", "self.numbers.fill_(-1)"),
)
patch(
    "goes_back_and_keeps_later_rows",
    "state",
    "rows of tokens that were taken back",
    "Only the length is set, and the numbers stay.",
    ("self.numbers[self.numbers >= n] = -1\n        ", ""),
)
patch(
    "goes_back_one_row_too_far",
    "off by one",
    "the row of the last token that stays, forgotten",
    "Later than n - 1, or from n - 1 on.",
    ("self.numbers >= n]", "self.numbers >= n - 1]"),
)
patch(
    "reset_keeps_the_length",
    "state",
    "a reset that keeps the length",
    "The numbers are cleared, and positions go on.",
    ("self.truncate(0)", "self.numbers.fill_(-1)"),
)
patch(
    "length_moves_before_the_refusal",
    "state",
    "a refused truncate that has moved the length",
    "The length is set, then the rows are looked at.",
    (GONE, f"self.length = n\n        {GONE}"),
    kind="refusals",
)
patch(
    "gone_is_full",
    "arguments",
    "a truncate that refuses as append does",
    "CacheFull is the error that caches have.",
    ('raise ValueError(f"of', 'raise CacheFull(f"of'),
)
patch(
    "rows_beyond_the_text_are_enough",
    "writes",
    "rows of another round taken for those that are needed",
    "Places are looked at: something lies there.",
    (GONE, "if (self.numbers[place_of(needed, self.window, self.n_sinks)] < 0).any():"),
)
patch(
    "long_chunk_keeps_one_token_too_few",
    "off by one",
    "a chunk of which the last W - 1 tokens stay, and not W",
    "The next token needs W - 1 others; one back, it needs one more.",
    ("new >= end - self.window", "new > end - self.window"),
)
