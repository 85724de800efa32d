"""The question that ends a failure of a bill, chosen by what the student's number looks like."""

from __future__ import annotations

from course.checks.roofline.passes import Bill, Call, Sizes


def ask_about_attention(config: Sizes, call: Call, got: float, right: int) -> str:
    T, P = call.n_new, call.n_past
    if T == 1 and got == right / 2:
        return (
            "One number with another, per pair and head: a multiply-add is 2 FLOPs. And how often "
            "does each pair need one: for its score alone?"
        )
    if got < right and got * config["n_heads"] == right * config["n_kv_heads"]:
        return "How many heads ask: those with queries of their own, or those with keys?"
    if T > 1 and P == 0:
        return f"Which of the {T} new tokens may look at how many?"
    if (T, P) == (1, 0) and 0 < got < right:
        return "In how many layers and heads does this one token look at itself?"
    if P and T == 1:
        return f"At how many tokens does the new one look, {P} being cached?"
    return "How many pairs of a token that looks and a token that is looked at are there?"


def ask_about_matrices(config: Sizes, call: Call, got: Bill, right: Bill) -> str:
    got, wanted = got["matrix_flops"], right["matrix_flops"]
    rows, head = call.batch * call.n_new, 2 * config["d_model"] * config["vocab_size"]
    if 2 * got == wanted:
        return "How many operations is one multiply-add?"
    if got == wanted - call.batch * head:
        return "Which matrix stands after the last layer?"
    if got == wanted + (rows - call.batch) * head:
        return "Of how many tokens of each row are logits computed?"
    if got == wanted + rows * head:
        return "Is a row of the embedding table multiplied, or looked up?"
    if got == wanted + right["attention_flops"] or got == wanted - right["attention_flops"]:
        return "Is attention in your flops, and once?"
    if wanted - got == 2 * rows * config["n_layers"] * config["d_model"] * config["d_ff"]:
        return "How many matrices has the feed-forward part?"
    if got * rows == wanted or got * call.batch == wanted:
        return "How many rows go through each matrix?"
    if config["n_kv_heads"] < config["n_heads"]:
        return "Which of the seven matrices of a layer have G·D columns?"
    return "Seven matrices in each layer, one after the last: which shape has each of them?"


def ask_about_weights(config: Sizes, call: Call, got: Bill, right: Bill) -> str:
    got, wanted, size = got["weight_bytes"], right["weight_bytes"], call.bytes_per_element
    table = config["d_model"] * config["vocab_size"] * size
    if got * size == wanted and size > 1:
        return "Are these bytes, or numbers?"
    if got == wanted + table:
        return "Is the whole embedding table read to look a few rows up?"
    if got == wanted - table:
        return "Which matrix do the logits need, wherever it is kept?"
    if got == wanted * call.n_new * call.batch and got != wanted:
        return "How often does a matrix leave memory in one forward pass?"
    if got == wanted * call.batch:
        return "The rows of a batch go through together. How often is a matrix read for them?"
    return "Seven matrices in each layer, one after the last. Which shape has each of them?"


def ask_about_cache(config: Sizes, call: Call, got: Bill, right: Bill) -> str:
    written, wanted = got["kv_written_bytes"], right["kv_written_bytes"]
    read, to_read = got["kv_read_bytes"], right["kv_read_bytes"]
    share = config["n_heads"] // config["n_kv_heads"]
    one_token = call.n_new == 1
    if share > 1 and (written == share * wanted or (one_token and read == share * to_read)):
        return "Of which heads does a cache hold keys and values?"
    if written * call.bytes_per_element == wanted or read * call.bytes_per_element == to_read:
        return "Are these bytes, or numbers?"
    if written * 2 == wanted or read * 2 == to_read:
        return "What is kept for each token beside its key?"
    if call.batch > 1 and (written * call.batch == wanted or read * call.batch == to_read):
        return "Whose cache is it: has each row of the batch its own?"
    if written == wanted and read > to_read:
        return "How often is the cache read, for all new tokens of a row together?"
    if written == wanted:
        return "At which tokens does a new token look? At itself?"
    return "Which rows are new, and which are read, in every layer?"


def ask_about_activations(config: Sizes, call: Call, got: Bill, right: Bill) -> str:
    got, wanted, size = got["activation_bytes"], right["activation_bytes"], call.bytes_per_element
    head_rows = config["d_model"] + config["vocab_size"]
    if got * size == wanted and size > 1:
        return "Are these bytes, or numbers?"
    if call.n_new > 1 and got == wanted + (call.n_new - 1) * call.batch * head_rows * size:
        return "How many tokens of each row does the last matrix see?"
    if got == wanted - call.batch * head_rows * size:
        return "What goes into the last matrix, and what comes out?"
    if call.n_new * call.batch > 1:
        return "One row was right. How many go through each matrix, and how many through the last?"
    return "Each of the matrices takes rows of one width and gives rows of another: which?"
