"""Wrong answers to `generate_naive`."""

import torch
import torch.nn.functional as F

from autograder.lessons.naive_decode.museum import MUSEUM
from course.minigpt import naive_decode as right
from course.minigpt.mini_gpt import greedy_next, merge_heads, split_heads
from course.model.bounds import check_between

START = "tokens = prompt.clone()"
CHOOSE = "greedy_next(model(tokens)[:, -1])"
APPEND = "tokens = torch.cat([tokens, new.unsqueeze(1)], dim=1)"
ROOM = "model.config.max_seq_len - prompt.shape[1]"
CHECK_PROMPT = "model.check_tokens(prompt)"
CHECK_N_NEW = f'check_between("n_new", n_new, 0, {ROOM})'

bug, patch = MUSEUM.section("generate_naive", check="result_starts_with_the_prompt")
patch(
    "nothing_for_nothing",
    "form",
    "an empty result where no new tokens were asked for",
    "Where no new tokens are wanted, nothing comes back: not even the prompt.",
    ("return tokens", "return tokens if n_new else tokens[:, :0]"),
    kind="sizes",
)
patch(
    "always_writes_something",
    "off by one",
    "a first token that is written even when none was asked for",
    "The first token is chosen before the loop, so that no tokens are one token.",
    (START, "tokens = torch.cat([prompt, greedy_next(model(prompt)[:, -1])[:, None]], dim=1)"),
    ("range(n_new)", "range(n_new - 1)"),
)
patch(
    "returns_only_the_new_tokens",
    "form",
    "a result without the prompt",
    "Cuts the prompt off, as a chat window would.",
    ("return tokens", "return tokens[:, prompt.shape[1] :]"),
)
patch(
    "one_token_too_many",
    "off by one",
    "a loop that turns once too often",
    "Turns the loop n_new + 1 times.",
    ("range(n_new)", "range(n_new + 1)"),
)
patch(
    "collects_into_floats",
    "form",
    "a result whose ids have become floats",
    "torch.zeros without a dtype: ids become floats.",
    (START, "tokens = torch.zeros(prompt.shape) + prompt"),
    ("model(tokens)", "model(tokens.long())"),
    kind="dtype",
)
patch(
    "loses_the_batch_of_one",
    "form",
    "a result that drops an axis of size 1",
    "squeeze() takes the batch away when it is 1.",
    ("return tokens", "return tokens.squeeze()"),
    kind="batch",
)

patch(
    "puts_the_new_in_front",
    "form",
    "a result in which new tokens stand before the prompt",
    "The two parts of cat are the other way round.",
    (APPEND, "tokens = torch.cat([new.unsqueeze(1), tokens], dim=1)"),
)
patch(
    "collects_into_int32",
    "form",
    "a result of int32 ids",
    "int() on a tensor is int32: ids are int64 here.",
    ("return tokens", "return tokens.int()"),
    kind="dtype",
)
patch(
    "returns_a_list",
    "form",
    "a result that is a list and no tensor",
    "tolist() at the end.",
    ("return tokens", "return tokens.tolist()"),
)
patch(
    "continues_the_first_row",
    "form",
    "a result with one row of the batch",
    "prompt[:1]: the other rows are left out.",
    (START, "tokens = prompt[:1].clone()"),
    kind="batch",
)
patch(
    "one_token_too_few",
    "off by one",
    "a loop that turns once too few",
    "range(1, n_new): the first is counted as written.",
    ("range(n_new)", "range(1, n_new)"),
)
patch(
    "ends_when_one_row_ends",
    "feeding",
    "a text that ends as soon as one row has written <end>",
    "break at `<end>`: the other rows lose their words.",
    (APPEND, f"{APPEND}\n        if (new == 1).any():\n            break"),
    kind="end",
)
patch(
    "wants_a_contiguous_prompt",
    "form",
    "a prompt that is taken by view, and so only where it lies in order",
    "view() cannot join axes of a slice or a transpose; reshape() can.",
    (START, "tokens = prompt.view(-1).view(prompt.shape).clone()"),
    kind="layout",
)

bug, patch = MUSEUM.section("generate_naive", check="every_new_token_is_the_likeliest")
patch(
    "reads_the_first_position",
    "choice",
    "a choice made from the logits of the first position",
    "Takes the logits of position 0 instead of the last.",
    ("[:, -1]", "[:, 0]"),
)
patch(
    "feeds_the_last_token_only",
    "feeding",
    "a model that is fed one token and has forgotten all before it",
    "Feeds one token without a cache: the model has forgotten all before it.",
    ("model(tokens)", "model(tokens[:, -1:])"),
)
patch(
    "feeds_the_prompt_every_time",
    "feeding",
    "a model that never reads what it wrote",
    "Never feeds back what was written: one word, again.",
    ("model(tokens)", "model(prompt)"),
)
patch(
    "first_row_decides",
    "choice",
    "a batch in which the first row chooses for all",
    "logits[0, -1]: every row gets the word of the first.",
    (CHOOSE, "model(tokens)[0, -1].argmax().repeat(len(tokens))"),
    kind="batch",
)
patch(
    "argmax_over_positions",
    "choice",
    "a maximum taken over the positions instead of the vocabulary",
    "argmax(dim=1) finds a position and takes it for an id.",
    (CHOOSE, "model(tokens).argmax(dim=1)[:, -1]"),
)
patch(
    "all_new_tokens_at_once",
    "choice",
    "several tokens chosen from the logits of one pass",
    "The n_new best first words in place of n_new words.",
    ("for _ in range(n_new):", "if n_new:"),
    (CHOOSE, "model(tokens)[:, -1].topk(n_new, dim=-1).indices"),
    ("new.unsqueeze(1)", "new"),
)
patch(
    "samples",
    "sampling",
    "tokens that are drawn where the likeliest was asked for",
    "Draws from the distribution where the likeliest is asked for.",
    (START, "tokens, generator = prompt.clone(), torch.Generator().manual_seed(0)"),
    (CHOOSE, "model(tokens)[:, -1].softmax(-1).multinomial(1, generator=generator)"),
    ("new.unsqueeze(1)", "new"),
)

patch(
    "ends_when_all_rows_end",
    "feeding",
    "a text that ends when every row writes <end>",
    "Right as long as one row goes on; a batch of one ends with its story.",
    (APPEND, f"{APPEND}\n        if (new == 1).all():\n            break"),
    kind="end",
)
patch(
    "pads_after_the_end",
    "feeding",
    "rows that are filled with <pad> once they have written <end>",
    "Rows that are done are filled up: neat, and not what was asked for.",
    (APPEND, f"new[(tokens[:, prompt.shape[1] :] == 1).any(dim=1)] = 0\n        {APPEND}"),
    kind="end",
)
patch(
    "never_chooses_the_end",
    "choice",
    "a choice without <end>",
    "Its logit is set to minus infinity, so that the text goes on: another text.",
    (
        CHOOSE,
        "(model(tokens)[:, -1] - 1e9 * (torch.arange(model.config.vocab_size) == 1)).argmax(-1)",
    ),
    kind="end",
)
patch(
    "never_chooses_a_pad",
    "choice",
    "a choice without <pad>",
    "Nobody would write it, so it is left out of the maximum.",
    (CHOOSE, "model(tokens)[:, -1, 1:].argmax(dim=-1) + 1"),
)
patch(
    "never_says_a_word_twice",
    "choice",
    "a choice without the words that stand there already",
    "A penalty for repeating, as samplers have it: not the likeliest token any more.",
    (CHOOSE, "model(tokens)[:, -1].scatter(1, tokens, -1e9).argmax(dim=-1)"),
)
patch(
    "chooses_the_unlikeliest",
    "choice",
    "the least likely token in place of the likeliest",
    "argmin, or argmax of a loss.",
    (CHOOSE, "model(tokens)[:, -1].argmin(dim=-1)"),
)
patch(
    "softmax_over_the_batch",
    "choice",
    "probabilities that add up to 1 over the rows of the batch",
    "softmax(0): right for one row.",
    (CHOOSE, "model(tokens)[:, -1].softmax(0).argmax(dim=-1)"),
    kind="batch",
)
patch(
    "reads_the_last_16_tokens",
    "feeding",
    "a model that is shown the last few tokens only",
    "A window keeps steps short, and forgets how the text began.",
    ("model(tokens)", "model(tokens[:, -16:])"),
    kind="sizes",
)
patch(
    "sorts_the_rows",
    "choice",
    "rows that come out in another order than they went in",
    "Rows are sorted, so that equal beginnings lie together, and never put back.",
    (
        "greedy_next(model(tokens)[:, -1])",
        "greedy_next(model(tokens[tokens[:, 0].argsort()])[:, -1])",
    ),
    kind="batch",
)


patch(
    "writes_into_a_hundred_places",
    "capacity",
    "a buffer with a size of its own",
    "100 places were enough while it was tried.",
    (
        START,
        "tokens = prompt.new_zeros(len(prompt), 100)\n    tokens[:, : prompt.shape[1]] = prompt",
    ),
    ("for _ in range(n_new):", "for n in range(prompt.shape[1], prompt.shape[1] + n_new):"),
    ("model(tokens)", "model(tokens[:, :n])"),
    (APPEND, "tokens[:, n] = new"),
    ("return tokens", "return tokens[:, : prompt.shape[1] + n_new]"),
    kind="sizes",
)


@bug("choice", "rows with an equal beginning that share one continuation", kind="batch")
def continues_equal_beginnings_alike(model, prompt, n_new):
    """Each different beginning is continued once: but rows that differ late are different texts."""
    texts = right.generate_naive(model, prompt, n_new)
    for row in range(1, len(prompt)):
        same = [n for n in range(row) if (prompt[n, :3] == prompt[row, :3]).all()]
        if same and prompt.shape[1] > 3:
            texts[row, prompt.shape[1] :] = texts[same[0], prompt.shape[1] :]
    return texts


@bug("state", "a text that was written by another model before", kind="instances")
def remembers_texts(model, prompt, n_new, known={}):  # noqa: B006 (the mistake)
    """Results are kept by prompt and n_new, to save work; the model is not a part of the key."""
    text = right.generate_naive(model, prompt, n_new)
    return known.setdefault(str((prompt.tolist(), n_new)), text).clone()


bug, patch = MUSEUM.section("generate_naive", check="prompt_is_left_alone")
patch(
    "hands_back_the_prompt_itself",
    "state",
    "a result that is the caller's own tensor",
    "For n_new=0 the loop never makes a new tensor.",
    (START, "tokens = prompt"),
    kind="results",
)
patch(
    "makes_room_in_the_prompt",
    "state",
    "a function that resizes the caller's prompt",
    "resize_ makes room in the caller's own tensor.",
    ("return tokens", "prompt.resize_(tokens.shape).copy_(tokens)\n    return tokens"),
    kind="arguments",
)
patch(
    "slides_the_prompt_along",
    "state",
    "a function that writes into the caller's prompt",
    "Shifts the caller's prompt to keep its length.",
    ("model(tokens)", "model(prompt)"),
    (APPEND, f"{APPEND}\n        prompt.copy_(tokens[:, -prompt.shape[1] :])"),
    kind="arguments",
)


@bug("state", "results that all lie in one and the same memory", kind="results")
def writes_into_one_buffer(model, prompt, n_new, kept={}):  # noqa: B006 (the mistake)
    """A buffer that is made once: the next text is written over the last one."""
    text = right.generate_naive(model, prompt, n_new)
    buffer = kept.setdefault(0, torch.zeros(9, 2000, dtype=torch.int64))
    return buffer[: text.shape[0], : text.shape[1]].copy_(text)


patch(
    "keeps_the_length_of_the_prompt",
    "state",
    "a function that writes new tokens over the caller's prompt",
    "tokens[:] = … shifts the text to the left in the caller's own tensor.",
    (APPEND, f"{APPEND}\n        prompt[:, :-1] = prompt[:, 1:].clone()"),
    kind="arguments",
)

bug, patch = MUSEUM.section("generate_naive", check="bad_requests_are_refused")
patch(
    "trusts_the_caller",
    "arguments",
    "a function that looks at none of its arguments",
    "range(-1) is empty: a negative n_new looks like success.",
    (CHECK_PROMPT, ""),
    (CHECK_N_NEW, ""),
)
patch(
    "lets_the_model_refuse_an_empty_prompt",
    "arguments",
    "a function that leaves an empty prompt to the forward pass, of which there may be none",
    "The model refuses to read nothing, but for n_new=0 it is never asked.",
    (CHECK_PROMPT, ""),
)
patch(
    "rounds_what_is_no_whole_number",
    "arguments",
    "a function that quietly makes a whole number of n_new",
    "int(2.5) is 2: half a token is lost.",
    (CHECK_PROMPT, f"n_new = int(n_new)\n    {CHECK_PROMPT}"),
)
patch(
    "lets_the_model_complain",
    "arguments",
    "a function that finds out about the length only when the model refuses it",
    "Too long is found out after minutes of work.",
    (ROOM, "10**9"),
    kind="refusals",
)
patch(
    "asserts",
    "arguments",
    "a function that refuses by assert",
    "AssertionError, and none at all under python -O.",
    (CHECK_PROMPT, "assert prompt.shape[1] > 0"),
    (CHECK_N_NEW, f"assert type(n_new) is int and 0 <= n_new <= {ROOM}, n_new"),
)
patch(
    "takes_one_token_less_than_none",
    "off by one",
    "a function that takes an n_new of -1 for a request",
    "The lowest n_new is counted from -1; range(-1) is empty, so nobody notices.",
    ('"n_new", n_new, 0', '"n_new", n_new, -1'),
)
patch(
    "refuses_to_write_nothing",
    "off by one",
    "a function that refuses an n_new of 0",
    "The lowest n_new is counted from 1, but no new tokens are a request like any other.",
    ('"n_new", n_new, 0', '"n_new", n_new, 1'),
    kind="sizes",
)
patch(
    "refuses_what_just_fits",
    "capacity",
    "a limit that leaves the last place unused",
    ">= in place of >: the last place stays empty.",
    (ROOM, f"{ROOM} - 1"),
    kind="sizes",
)
patch(
    "takes_one_too_many",
    "capacity",
    "a limit that lets in one token more than there are places",
    "The last token is chosen and never fed in, so the model does not complain.",
    (ROOM, f"{ROOM} + 1"),
)
patch(
    "forgets_the_prompt_in_the_limit",
    "capacity",
    "a limit for the new tokens alone, without the prompt before them",
    "n_new is held against max_seq_len, of which the prompt has taken its part.",
    (ROOM, "model.config.max_seq_len"),
)
patch(
    "takes_the_batch_for_the_prompt",
    "capacity",
    "a limit that counts the rows of the batch in place of the prompt's tokens",
    "shape[0] in place of shape[1].",
    ("prompt.shape[1])", "prompt.shape[0])"),
)


@bug("arguments", "a refusal that does not say what was wrong")
def names_nothing(model, prompt, n_new):
    """A ValueError that leaves the caller guessing."""
    try:
        return right.generate_naive(model, prompt, n_new)
    except ValueError:
        raise ValueError("bad input") from None


patch(
    "refuses_by_type_error",
    "arguments",
    "a function that refuses half a token by TypeError",
    "A float is another type; but asked for is a ValueError, whatever was wrong with n_new.",
    (
        CHECK_PROMPT,
        f"{CHECK_PROMPT}\n    if not isinstance(n_new, int):\n        raise TypeError(n_new)",
    ),
)
patch(
    "writes_as_many_as_fit",
    "arguments",
    "a function that writes fewer tokens than were asked for where not all fit",
    "min(n_new, room): the caller gets a shorter text, and no word about it.",
    (
        CHECK_N_NEW,
        f"{CHECK_N_NEW.replace(ROOM, '10**9')}\n    n_new = min(n_new, {ROOM})",
    ),
    kind="refusals",
)
patch(
    "slides_along",
    "arguments",
    "a function that goes on with a part of the text where the whole does not fit",
    "The last max_seq_len tokens are read: a text without its beginning.",
    (CHECK_N_NEW, CHECK_N_NEW.replace(ROOM, "10**9")),
    ("model(tokens)", "model(tokens[:, -model.config.max_seq_len :])"),
)
patch(
    "gives_back_an_empty_prompt",
    "arguments",
    "a function that takes an empty prompt for a text without an answer",
    "Nothing in, nothing out.",
    (CHECK_PROMPT, f"if prompt.shape[1] == 0:\n        return prompt.clone()\n    {CHECK_PROMPT}"),
)
patch(
    "looks_when_it_is_done",
    "arguments",
    "a function that looks at the length of the text when it is written",
    "The limit is held against the result.",
    (CHECK_N_NEW, CHECK_N_NEW.replace(ROOM, "10**9")),
    ("return tokens", f"{CHECK_N_NEW}\n    return tokens"),
    kind="refusals",
)
patch(
    "takes_the_amount",
    "arguments",
    "a function that takes -2 new tokens for 2",
    "abs(n_new): what is wrong is made right without a word.",
    (CHECK_PROMPT, f"n_new = abs(n_new)\n    {CHECK_PROMPT}"),
)

bug, patch = MUSEUM.section("generate_naive", check="each_step_reads_everything")
patch(
    "looks_one_token_too_far",
    "cost",
    "one forward pass whose token nobody wants",
    "The last forward pass chooses a token nobody wants.",
    ("return tokens", f"{CHOOSE}\n    return tokens"),
    kind="cost",
)
patch(
    "reads_the_empty_places_too",
    "cost",
    "a model that reads places which are still empty",
    "Runs the whole buffer, zeros included, every time.",
    (START, "tokens = torch.cat([prompt, prompt.new_zeros(len(prompt), n_new)], dim=1)"),
    ("for _ in range(n_new)", "for n in range(prompt.shape[1], tokens.shape[1])"),
    ("[:, -1]", "[:, n - 1]"),
    (APPEND, "tokens[:, n] = new"),
    kind="cost",
)
patch(
    "starts_over_for_every_token",
    "cost",
    "a text that is generated from its prompt again for every new token",
    "Generates all from the prompt again, one token longer each time.",
    ("for _ in range(n_new)", "for step in [step for n in range(n_new) for step in range(n + 1)]"),
    ("        new =", "        tokens = prompt.clone() if step == 0 else tokens\n        new ="),
    kind="cost",
)

patch(
    "feeds_the_prompt_token_by_token",
    "cost",
    "passes over the beginnings of the prompt that choose no token",
    "The prompt is read one token longer each time, before the first word is chosen.",
    (
        START,
        "tokens = prompt.clone()\n    for n in range(1, prompt.shape[1]):\n        model(prompt[:, :n])",
    ),
    kind="cost",
)
patch(
    "warms_up",
    "cost",
    "a forward pass over the prompt before the loop, for nobody",
    "One call to see whether the model takes the prompt; the loop begins with the same one.",
    (START, "tokens = prompt.clone()\n    model(tokens)"),
    kind="cost",
)


@bug("cost", "keys and values that are kept from one step to the next", kind="evidence")
def keeps_keys_and_values(model, prompt, n_new):
    """The next lesson's answer: the same text from fewer rows, and not the work asked for here."""
    text = right.generate_naive(model, prompt, 0)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])
    kept = [None for _ in model.blocks]
    for step in range(n_new):
        fed = text if step == 0 else text[:, -1:]
        positions = torch.arange(text.shape[1] - fed.shape[1], text.shape[1])
        x = model.embed(fed)
        for layer, block in enumerate(model.blocks):
            attn, y = block.attn, block.attn_norm(x)
            q = attn.rotate(split_heads(attn.wq(y), attn.n_heads), positions)
            k = attn.rotate(split_heads(attn.wk(y), attn.n_kv_heads), positions)
            rows = k, split_heads(attn.wv(y), attn.n_kv_heads)
            if kept[layer]:
                rows = tuple(torch.cat(pair, 2) for pair in zip(kept[layer], rows, strict=True))
            kept[layer] = rows
            heads = F.scaled_dot_product_attention(q, *rows, is_causal=step == 0, enable_gqa=True)
            x = x + attn.wo(merge_heads(heads))
            x = x + block.mlp(block.mlp_norm(x))
        text = torch.cat([text, greedy_next(model.lm_head(model.norm(x))[:, -1])[:, None]], dim=1)
    return text
