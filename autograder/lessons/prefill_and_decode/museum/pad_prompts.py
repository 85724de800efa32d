"""Known wrong answers to lesson 04: `pad_prompts`."""

from __future__ import annotations

from autograder.lessons.prefill_and_decode.museum import MUSEUM

bug, patch = MUSEUM.section("pad_prompts", check="pads_stand_on_the_left")
patch(
    "pad_on_the_right",
    "position",
    "pads that stand behind the prompts",
    "pad_sequence as it is: the prompts end in different columns.",
    ("row[T - len(prompt) :]", "row[: len(prompt)]"),
)
patch(
    "pads_counted_by_id",
    "formula",
    "pads that are counted by their id, which may also be a token",
    "Every pad_id in the batch is counted, those of the prompts too.",
    ("T - lengths", "(tokens == pad_id).sum(dim=1)"),
)
patch(
    "lengths_for_pads",
    "formula",
    "a count of tokens where pads were asked for",
    "The lengths of the prompts come back in place of the pads.",
    ("T - lengths", "lengths"),
)
patch(
    "pads_all_zero",
    "feeding",
    "pads of id zero, whatever was asked for",
    "torch.zeros to begin with, whatever pad_id is.",
    ("pad_id, dtype", "0, dtype"),
)
patch(
    "pads_one_column_more",
    "off by one",
    "a batch with a pad before every prompt, the longest too",
    "One column too many, so that even the longest prompt has a pad.",
    ("int(lengths.max())", "int(lengths.max()) + 1"),
)
patch(
    "prompts_cut_to_the_shortest",
    "feeding",
    "prompts that were cut to one length",
    "zip, or a stack, needs one length: the shortest.",
    (
        "lengths = torch",
        "prompts = [p[-min(map(len, prompts)) :] for p in prompts]\n    lengths = torch",
    ),
)
patch(
    "pads_counted_by_leading_id",
    "formula",
    "pads that are counted up to the first other id, though a prompt may begin with pad_id",
    "The leading ids are counted: a prompt that begins with pad_id seems to have more pads.",
    ("T - lengths", "(tokens == pad_id).long().cumprod(dim=1).sum(dim=1)"),
)
patch(
    "pads_counted_to_the_first_other_id",
    "formula",
    "pads that are counted up to the first other id, and as none where a prompt has no other",
    "argmax of tokens != pad_id: a prompt may begin with pad_id, and of nothing the argmax is 0.",
    ("T - lengths", "(tokens != pad_id).long().argmax(dim=1)"),
)
patch(
    "pads_to_a_multiple_of_8",
    "form",
    "rows that are filled up to a multiple of 8",
    "Widths that a GPU likes: every row gets more pads than were asked for.",
    ("int(lengths.max())", "-(-int(lengths.max()) // 8) * 8"),
)
patch(
    "pads_to_a_fixed_width",
    "form",
    "rows of one fixed width, which longer prompts do not fit",
    "512 columns hold every prompt that was tried.",
    ("int(lengths.max())", "max(512, int(lengths.max()))"),
    kind="sizes",
)
patch(
    "prompts_cut_at_512",
    "capacity",
    "prompts that are cut to their last 512 tokens",
    "A limit, as some tokenizers set it without a word.",
    ("lengths = torch", "prompts = [p[-512:] for p in prompts]\n    lengths = torch"),
    kind="sizes",
)
patch(
    "prompts_sorted_by_length",
    "state",
    "rows that are sorted by length",
    "Sorted, prompts of like length stand together; but row b is no longer prompt b.",
    ("lengths = torch", "prompts = sorted(prompts, key=len)\n    lengths = torch"),
    kind="batch",
)
patch(
    "prompts_sorted_longest_first",
    "state",
    "rows that are sorted by length, the longest first",
    "As pack_padded_sequence wants them; but row b is no longer prompt b.",
    (
        "lengths = torch",
        "prompts = sorted(prompts, key=len, reverse=True)\n    lengths = torch",
    ),
    kind="batch",
)
patch(
    "prompts_sorted_in_place",
    "arguments",
    "a list of prompts that was sorted in place",
    "prompts.sort() changes the caller's list, and the order of the rows.",
    ("lengths = torch", "prompts.sort(key=len)\n    lengths = torch"),
    kind="arguments",
)
patch(
    "prompts_sorted_beside_their_counts",
    "state",
    "rows that are sorted by length, beside counts that are not",
    "The rows are filled in the order of their lengths; the counts stay in that of the prompts.",
    ("zip(tokens, prompts, strict=True)", "zip(tokens, sorted(prompts, key=len), strict=True)"),
    kind="batch",
)
patch(
    "rows_in_one_memory",
    "state",
    "rows that all lie in one memory, so that the last prompt stands in each",
    "One row of pads, expanded (or a list times B): what is written into one row is in all of them.",
    (
        "torch.full((len(prompts), T), pad_id, dtype=torch.int64)",
        "torch.full((1, T), pad_id, dtype=torch.int64).expand(len(prompts), T)",
    ),
    kind="batch",
)
patch(
    "equal_prompts_once",
    "feeding",
    "a batch in which neighbouring equal rows stand only once",
    "The same prompt twice needs no second row, one thinks.",
    ("return tokens, T - lengths", "return torch.unique_consecutive(tokens, dim=0), T - lengths"),
    kind="batch",
)
patch(
    "a_single_prompt_as_it_is",
    "state",
    "a batch that lies in the memory of the prompt that it was made of",
    "One prompt needs no pads, so a view of it comes back: what is written there later is in both.",
    (
        "lengths = torch",
        "if len(prompts) == 1:\n"
        "        return prompts[0].unsqueeze(0), torch.zeros(1, dtype=torch.int64)\n"
        "    lengths = torch",
    ),
    kind="results",
)
patch(
    "pads_as_a_list",
    "form",
    "a list in place of the tensor of pads",
    "A list of ints is as good, one thinks, until it is compared with places.",
    ("T - lengths", "(T - lengths).tolist()"),
)
patch(
    "pads_as_a_column",
    "form",
    "pads that stand in a column",
    "So they broadcast later; but (B,) was asked for.",
    ("T - lengths", "(T - lengths).unsqueeze(1)"),
)
patch(
    "pads_in_int32",
    "form",
    "pads or tokens that are not int64",
    "NumPy's lengths, or a smaller type to save memory.",
    ("T - lengths", "(T - lengths).int()"),
    kind="dtype",
)
patch(
    "tokens_in_float",
    "form",
    "tokens that are not int64 but numbers with a point",
    "torch.zeros, or a pad_id with a point, makes float32.",
    ("pad_id, dtype=torch.int64", "float(pad_id)"),
    kind="dtype",
)
patch(
    "prompts_unchecked",
    "arguments",
    "prompts that are refused by another error than ValueError, or not at all",
    "The line that checks the prompts is gone.",
    ("    check_prompts(prompts)\n", ""),
    kind="refusals",
)
patch(
    "prompts_reversed",
    "feeding",
    "prompts whose tokens stand in reverse",
    "Flipped, to fill up on the other side, and never flipped back.",
    ("len(prompt) :] = prompt", "len(prompt) :] = prompt.flip(0)"),
)
