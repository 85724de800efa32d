"""Wrong answers to `phase_cost`."""

from __future__ import annotations

import numpy as np

from autograder.lessons.roofline.museum import MUSEUM
from course.measure.costs import Cost
from course.minigpt import roofline as right

LAYER = "(C, GD), (C, GD), (C, C), (C, f), (C, f), (f, C)]"
HEAD = "(weights + C * V)"
ATTENTION = "attention_flops(config, n_new, n_past, batch)"
BOUNDS = (
    '    check_between("n_new", n_new, 1, 2**31)\n'
    '    check_between("n_past", n_past, 0, 2**31)\n'
    '    check_between("batch", batch, 1, 2**31)\n'
    '    check_between("bytes_per_element", bytes_per_element, 1, 8)\n'
)

# --- operations ----------------------------------------------------------------------------------

bug, patch = MUSEUM.section("phase_cost", check="matrices_match_the_counter")

patch(
    "multiply_add_as_one",
    "formula",
    "a count in which a multiplication and its addition are one operation",
    "Takes one multiply-add for one operation: half of the FLOPs.",
    ("flops=2 * (", "flops=("),
)
patch(
    "logits_of_every_position",
    "cost",
    "a bill for the logits of every position",
    "Bills a prompt for logits that nobody asks for.",
    ("batch * C * V", "rows * C * V"),
)
patch(
    "logits_of_one_row",
    "formula",
    "a bill for the logits of one row of a batch",
    "One last position, whatever the batch.",
    ("batch * C * V", "C * V"),
    kind="batch",
)
patch(
    "head_is_forgotten",
    "formula",
    "a bill without the matrix that makes the logits",
    "Counts the layers; the last matrix stands after them.",
    (" + batch * C * V", ""),
)
patch(
    "tied_head_is_not_multiplied",
    "formula",
    "a bill in which a tied head makes logits for nothing",
    "Tied means stored once. The logits still multiply by it.",
    ("batch * C * V", "(not config.tie_embeddings) * batch * C * V"),
)
patch(
    "embedding_is_multiplied",
    "formula",
    "a bill in which looking up an embedding is a matrix product",
    "Takes looking rows up for a product with one-hot rows.",
    ("batch * C * V", "(batch + rows) * C * V"),
)
patch(
    "two_matrices_in_the_mlp",
    "formula",
    "a bill in which the feed-forward part has two matrices",
    "GPT-2's MLP has two matrices; SwiGLU has three.",
    ("(C, f), (C, f), (f, C)", "(C, f), (f, C)"),
)
patch(
    "mlp_of_four_widths",
    "formula",
    "a bill in which the feed-forward part is four times as wide as the model",
    "4 · C, as in GPT-2: this config has a d_ff.",
    ("config.d_ff", "4 * config.d_model"),
)
patch(
    "keys_as_wide_as_queries",
    "formula",
    "a bill in which keys are as wide as queries",
    "4·C² for attention: wk and wv have only G·D columns.",
    (LAYER, LAYER.replace("(C, GD)", "(C, C)")),
)
patch(
    "keys_as_wide_as_one_head",
    "formula",
    "a bill in which keys are as wide as one head",
    "D columns in place of G·D.",
    (LAYER, LAYER.replace("(C, GD)", "(C, config.head_dim)")),
)
patch(
    "keys_as_wide_as_a_group",
    "formula",
    "a bill in which the model's width is cut into as many parts as there are key heads",
    "C // G columns: the width of all query heads that share a key.",
    ("config.n_kv_heads * config.head_dim", "config.d_model // config.n_kv_heads"),
)
patch(
    "no_matrix_after_attention",
    "formula",
    "a bill without the matrix that ends attention",
    "q, k and v, and then the feed-forward part.",
    (LAYER, LAYER.replace("(C, C), ", "")),
)
patch(
    "products_of_one_layer",
    "formula",
    "a bill for the products of one layer",
    "Adds seven products up, and forgets how many layers have them.",
    ("rows * weights", "rows * weights // L"),
)
patch(
    "norms_are_matrices",
    "formula",
    "a bill with the weights of the norms in it",
    "Two gains of C numbers a layer: the lesson does not bill them.",
    (
        "weights = L * sum(k * n for k, n in layer)",
        "weights = L * (2 * C + sum(k * n for k, n in layer))",
    ),
)
patch(
    "attention_left_out",
    "formula",
    "a bill without the FLOPs of attention",
    "2 · parameters · tokens, and nothing for looking back.",
    (f" + {ATTENTION}", ""),
)
patch(
    "attention_of_one_row_alone",
    "arguments",
    "a bill in which attention is asked for one row",
    "attention_flops is called without the batch.",
    (ATTENTION, "attention_flops(config, n_new, n_past)"),
    kind="batch",
)
patch(
    "attention_without_the_cached",
    "arguments",
    "a bill in which attention is asked for the new tokens alone",
    "attention_flops is called without the cached tokens.",
    (ATTENTION, "attention_flops(config, n_new, 0, batch)"),
)
patch(
    "attention_of_exchanged_tokens",
    "arguments",
    "a bill in which new and cached tokens are exchanged on the way to attention",
    "attention_flops is called with its numbers in another order.",
    (ATTENTION, "attention_flops(config, n_past, n_new, batch)"),
)
for name, mistake, story, pairs, heads in (
    (
        "attention_inside_without_a_mask",
        "a bill with an attention of its own, in which new tokens look at those after them",
        "Attention is written out once more in the bill, as T · (P + T) looks.",
        "n_new * (n_past + n_new)",
        "config.n_heads",
    ),
    (
        "attention_inside_of_key_heads",
        "a bill with an attention of its own, in which only as many heads ask as there are key heads",
        "Attention is written out once more in the bill, with the width of the keys.",
        "(n_new * n_past + n_new * (n_new + 1) // 2)",
        "config.n_kv_heads",
    ),
):
    patch(
        name,
        "formula",
        mistake,
        story,
        (ATTENTION, f"4 * batch * L * {heads} * config.head_dim * {pairs}"),
    )
patch(
    "attention_in_every_layer",
    "formula",
    "a bill in which the attention of all layers counts in every layer",
    "attention_flops has the layers in it already.",
    (ATTENTION, f"L * {ATTENTION}"),
)
patch(
    "batch_shares_the_work",
    "formula",
    "a bill in which a batch is calculated like one row",
    "A batch shares the weights, but not the arithmetic.",
    ("rows * weights + batch * C * V", "n_new * weights + C * V"),
    kind="batch",
)
patch(
    "layers_see_one_row",
    "formula",
    "a bill in which one row of a batch goes through the layers",
    "T rows in place of B · T; the logits are counted rightly.",
    ("rows * weights", "n_new * weights"),
    kind="batch",
)
patch(
    "bill_keeps_its_list",
    "state",
    "a bill that grows from call to call",
    "A list as a default is made once: every call adds seven matrices more.",
    ("bytes_per_element: int = 2", "bytes_per_element: int = 2, layer: list = []"),
    ("layer = [", "layer += ["),
    kind="results",
)


@bug("form", "a bill in float32, which keeps seven digits", kind="sizes")
def bill_in_float32(config, n_new, n_past, batch=1, bytes_per_element=2):
    """Sums of torch or NumPy in float32: large counts lose their last digits."""
    cost = right.phase_cost(config, n_new, n_past, batch, bytes_per_element)
    return Cost(**{name: float(np.float32(count)) for name, count in vars(cost).items()})


# --- weights -------------------------------------------------------------------------------------

bug, patch = MUSEUM.section("phase_cost", check="weights_are_read_once")

patch(
    "weights_for_every_token",
    "formula",
    "a bill in which weights are read again for every token",
    "Reads every matrix again for every token: prefill would be decode.",
    (HEAD, f"rows * {HEAD}"),
)
patch(
    "weights_for_every_row",
    "formula",
    "a bill in which every row of a batch reads the weights anew",
    "Multiplies the weights by the batch: batching would gain nothing.",
    (HEAD, f"batch * {HEAD}"),
    kind="batch",
)
patch(
    "weights_for_every_token_of_a_row",
    "formula",
    "a bill in which weights are read again for every token, and once for all rows",
    "T passes for a prompt, as decode has them.",
    (HEAD, f"n_new * {HEAD}"),
)
patch(
    "whole_table_is_read",
    "formula",
    "a bill that reads the whole embedding table where it is not tied",
    "Bytes of all parameters: but of the embedding table a few rows are looked up.",
    (HEAD, "(weights + C * V + (not config.tie_embeddings) * C * V)"),
)
patch(
    "table_is_read_twice",
    "formula",
    "a bill that reads the embedding table besides lm_head, tied or not",
    "Two tables at both ends of the model, both of them read.",
    (HEAD, "(weights + 2 * C * V)"),
)
patch(
    "tied_head_costs_nothing",
    "formula",
    "a bill in which a tied head need not be read",
    "Tied means stored once. The logits still read it.",
    (HEAD, "(weights + (not config.tie_embeddings) * C * V)"),
)
patch(
    "head_in_every_layer",
    "formula",
    "a bill in which every layer has a head",
    "lm_head stands in the list of a layer's matrices.",
    (HEAD, "(weights + L * C * V)"),
)
patch(
    "weights_of_one_layer",
    "formula",
    "a bill for the weights of one layer",
    "Adds seven matrices up, and forgets how many layers have them.",
    (HEAD, "(weights // L + C * V)"),
)
patch(
    "weights_in_numbers",
    "formula",
    "a count of numbers where bytes were asked for",
    "Counts parameters and calls them bytes.",
    (f"{HEAD} * bytes_per_element", "weights + C * V"),
)
patch(
    "always_two_bytes",
    "arguments",
    "a bill with two bytes for each number, whatever was asked for",
    "Half precision is in the head: the argument is not used.",
    ("    C, f, V, L =", "    bytes_per_element = 2\n    C, f, V, L ="),
)
patch(
    "bill_in_bits",
    "formula",
    "a bill in bits",
    "Eight for each byte.",
    ("    C, f, V, L =", "    bytes_per_element *= 8\n    C, f, V, L ="),
)
patch(
    "layers_without_the_head",
    "formula",
    "a bill of the layers alone",
    "Adds the layers up and stops before lm_head.",
    (HEAD, "weights"),
)

# --- cache ---------------------------------------------------------------------------------------

bug, patch = MUSEUM.section("phase_cost", check="cache_is_read_and_written")

READ = "batch * (n_past + n_new)"

patch(
    "no_cache_in_the_bill",
    "formula",
    "a bill without the cache",
    "Weights only: fine for a short text and one user.",
    ("2 * L * GD * bytes_per_element", "0"),
)
patch(
    "cache_of_query_heads",
    "formula",
    "a bill for a cache of as many heads as there are queries",
    "H heads in place of G: what GQA saves is billed.",
    ("2 * L * GD", "2 * L * C"),
)
patch(
    "cache_of_one_head",
    "formula",
    "a bill for a cache of one head",
    "D in place of G·D.",
    ("2 * L * GD", "2 * L * config.head_dim"),
)
patch(
    "cache_of_one_layer",
    "formula",
    "a bill for the cache of one layer",
    "Every layer keeps keys and values of its own.",
    ("2 * L * GD", "2 * GD"),
)
patch(
    "new_tokens_are_not_read",
    "off by one",
    "a bill in which new tokens are written and not read",
    "Reads P rows: but a new token looks at itself as well.",
    ("(n_past + n_new)", "n_past"),
)
patch(
    "last_token_is_not_read",
    "off by one",
    "a bill in which the last token is written and not read",
    "P + T - 1: nobody looks at the last one, but itself.",
    ("(n_past + n_new)", "(n_past + n_new - 1)"),
)
patch(
    "one_new_token_is_read",
    "formula",
    "a bill in which one new token is read, however many there are",
    "P + 1, right for decode.",
    ("(n_past + n_new)", "(n_past + 1)"),
)
patch(
    "nothing_is_read_at_first",
    "formula",
    "a bill in which a prompt reads no keys",
    "Nothing is cached yet: but its tokens look at each other.",
    ("(n_past + n_new)", "(n_past + n_new if n_past else 0)"),
)
patch(
    "keys_without_values",
    "formula",
    "a bill for keys, without values",
    "A cache holds two tensors.",
    ("2 * L * GD", "L * GD"),
)
patch(
    "batch_shares_a_cache",
    "formula",
    "a bill in which all rows of a batch share one cache",
    "The weights are shared, so the cache seems to be.",
    (READ, "(n_past + n_new)"),
    ("rows * token_bytes", "n_new * token_bytes"),
    kind="batch",
)
patch(
    "batch_shares_what_is_read",
    "formula",
    "a bill in which all rows of a batch read one cache",
    "Each row writes its own, and then all of them read the same.",
    (READ, "(n_past + n_new)"),
    kind="batch",
)
patch(
    "batch_shares_what_is_written",
    "formula",
    "a bill in which one row of a batch is written",
    "Each row reads its own, and one of them writes.",
    ("rows * token_bytes", "n_new * token_bytes"),
    kind="batch",
)
patch(
    "one_token_is_written",
    "formula",
    "a bill in which one token of a row is written, however many are new",
    "Right for decode.",
    ("rows * token_bytes", "batch * token_bytes"),
)
patch(
    "cache_is_read_by_every_token",
    "formula",
    "a bill in which each token of a chunk reads the cache anew",
    "Reads the cache once a token: but attention of a chunk reads it once.",
    ("batch * (n_past", "rows * (n_past"),
)
patch(
    "cache_is_read_at_every_look",
    "formula",
    "a bill in which a key is read at every look",
    "Takes the pairs of attention for reads: but a chunk reads a key once for all its tokens.",
    (READ, "batch * (n_new * n_past + n_new * (n_new + 1) // 2)"),
)
patch(
    "cache_is_written_anew",
    "writes",
    "a bill in which the whole cache is written in every pass",
    "As with torch.cat, every old row is written again.",
    ("rows * token_bytes", f"{READ} * token_bytes"),
)
patch(
    "read_and_written_exchanged",
    "form",
    "a bill in which reading and writing the cache are exchanged",
    "Two fields in the wrong order.",
    ("kv_read_bytes=batch", "kv_written_bytes=batch"),
    ("kv_written_bytes=rows", "kv_read_bytes=rows"),
)
patch(
    "cache_in_numbers",
    "formula",
    "a count of the numbers in a cache, not of their bytes",
    "Leaves the element size out.",
    ("GD * bytes_per_element", "GD"),
)
patch(
    "cache_up_to_the_models_length",
    "capacity",
    "a cache that ends where the model's texts end",
    "No text is longer than max_seq_len; but nothing is run here.",
    ("(n_past + n_new)", "min(n_past + n_new, config.max_seq_len)"),
    kind="sizes",
)
patch(
    "cache_is_read_with_its_empty_room",
    "capacity",
    "a bill that reads all the room of a cache, filled or not",
    "max_seq_len tokens, whatever is held.",
    ("(n_past + n_new)", "config.max_seq_len"),
)
patch(
    "bill_in_fp32_by_default",
    "arguments",
    "a bill in float32 where no width was asked for",
    "The default of the signature was changed to what a CPU calculates in.",
    ("bytes_per_element: int = 2", "bytes_per_element: int = 4"),
)
patch(
    "bounds_are_left_out",
    "arguments",
    "a bill that does not check its numbers",
    "The whole function was written anew, without the given lines.",
    (BOUNDS, ""),
    kind="refusals",
)
patch(
    "bounds_are_asserted",
    "arguments",
    "a bill that refuses with another error than the one that was promised",
    "assert is shorter than raise.",
    (BOUNDS, "    assert n_new >= 1 and n_past >= 0 and batch >= 1 and bytes_per_element >= 1\n"),
    kind="refusals",
)

# --- activations ---------------------------------------------------------------------------------

bug, patch = MUSEUM.section("phase_cost", check="activations_go_in_and_out")

ROWS = "rows * widths + batch * (C + V)"

patch(
    "activations_of_one_row",
    "formula",
    "a bill in which one row goes through, however many there are",
    "Decode of one user, for ever.",
    (ROWS, "widths + C + V"),
)
patch(
    "activations_of_one_text",
    "formula",
    "a bill in which the tokens of one text go through the layers, whatever the batch",
    "T rows in place of B · T.",
    (ROWS, "n_new * widths + batch * (C + V)"),
    kind="batch",
)
patch(
    "last_row_of_one_text",
    "formula",
    "a bill in which one row goes through the last matrix, whatever the batch",
    "Each text has a last token.",
    ("batch * (C + V)", "(C + V)"),
    kind="batch",
)
patch(
    "activations_of_all_logits",
    "cost",
    "a bill for activations of logits that nobody asked for",
    "Lets every position go through lm_head.",
    ("batch * (C + V)", "rows * (C + V)"),
)
patch(
    "activations_without_the_head",
    "formula",
    "a bill without what goes into the last matrix and comes out of it",
    "The layers alone.",
    (" + batch * (C + V)", ""),
)
patch(
    "activations_of_one_layer",
    "formula",
    "a bill for the activations of one layer",
    "Adds the widths of seven matrices up, and forgets how many layers have them.",
    ("widths = L * sum", "widths = sum"),
)
patch(
    "activations_go_in_only",
    "formula",
    "a bill for what goes into the matrices, without what comes out",
    "Counts what is read and not what is written.",
    ("k + n for", "k for"),
    ("batch * (C + V)", "batch * C"),
)
patch(
    "activations_come_out_only",
    "formula",
    "a bill for what comes out of the matrices, without what goes in",
    "Counts what is written and not what is read.",
    ("k + n for", "n for"),
    ("batch * (C + V)", "batch * V"),
)
patch(
    "shared_inputs_count_once",
    "formula",
    "a bill in which matrices that share an input read it once",
    "wq, wk and wv take the same row, and gate and up do: here each of them reads it.",
    (
        "widths = L * sum(k + n for k, n in layer)",
        "widths = L * (sum(k + n for k, n in layer) - 3 * C)",
    ),
)
patch(
    "queries_keys_and_values_share_a_row",
    "formula",
    "a bill in which wq, wk and wv together read a row once",
    "One row goes into three matrices; here each of them reads it.",
    (
        "widths = L * sum(k + n for k, n in layer)",
        "widths = L * (sum(k + n for k, n in layer) - 2 * C)",
    ),
)
patch(
    "scores_are_written_and_read",
    "formula",
    "a bill with the scores of attention in it, written and read",
    "Scores before the softmax and after it: the lesson bills neither.",
    (ROWS, f"{ROWS} + 2 * rows * L * config.n_heads * (n_past + n_new)"),
)
patch(
    "scores_are_activations",
    "formula",
    "a bill with the scores of attention in it",
    "H · T · (P + T) numbers a layer: the lesson does not bill what is held for a moment.",
    (ROWS, f"{ROWS} + rows * L * config.n_heads * (n_past + n_new)"),
)
patch(
    "activations_in_numbers",
    "formula",
    "a count of activations, not of their bytes",
    "Leaves the element size out.",
    (f"({ROWS}) * bytes_per_element", ROWS),
)
