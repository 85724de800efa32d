"""Wrong answers to `generate_naive`."""

import torch
import torch.nn.functional as F

from autograder.lessons.naive_decode.museum import MUSEUM
from course.minigpt import naive_decode as right
from course.minigpt.mini_gpt import greedy_next, merge_heads, split_heads
from course.model.bounds import check_between

bug = MUSEUM.section("generate_naive", check="every_new_token_is_the_likeliest")


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


bug = MUSEUM.section("generate_naive", check="prompt_is_left_alone")


@bug("state", "results that all lie in one and the same memory", kind="results")
def writes_into_one_buffer(model, prompt, n_new, kept={}):  # noqa: B006 (the mistake)
    """A buffer that is made once: the next text is written over the last one."""
    text = right.generate_naive(model, prompt, n_new)
    buffer = kept.setdefault(0, torch.zeros(9, 2000, dtype=torch.int64))
    return buffer[: text.shape[0], : text.shape[1]].copy_(text)


@bug("choice", "a copy of the prompt, to which nothing was written", kind="cheapest")
def copy_of_the_prompt(model, prompt, n_new):
    """The prompt stays as it was, and so does the text."""
    return prompt.clone()


@bug("feeding", "one token that is chosen once and then repeated", kind="cheapest")
def repeats_the_first_token(model, prompt, n_new):
    """One forward pass; what it says about the first new token is taken for all of them."""
    new = model(prompt)[:, -1].argmax(dim=-1, keepdim=True)
    return torch.cat([prompt, new.expand(-1, n_new)], dim=1)


bug = MUSEUM.section("generate_naive", check="result_starts_with_the_prompt")


@bug("choice", "new tokens that are all 0, with no model asked", kind="cheapest")
def zeros_behind_the_prompt(model, prompt, n_new):
    """The right shape, and no forward pass."""
    return torch.cat([prompt, prompt.new_zeros(len(prompt), n_new)], dim=1)


bug = MUSEUM.section("generate_naive", check="bad_requests_are_refused")


@bug("arguments", "a refusal that does not say what was wrong")
def names_nothing(model, prompt, n_new):
    """A ValueError that leaves the caller guessing."""
    try:
        return right.generate_naive(model, prompt, n_new)
    except ValueError:
        raise ValueError("bad input") from None


bug = MUSEUM.section("generate_naive", check="each_step_reads_everything")


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
