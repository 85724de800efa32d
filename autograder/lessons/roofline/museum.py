"""Known wrong answers to lesson 05."""

from __future__ import annotations

import time
from types import SimpleNamespace

import torch

from autograder.lessons.exhibits import Museum
from course.minigpt import roofline as right

MUSEUM = Museum("roofline")

# --- attention_flops -----------------------------------------------------------------------------

bug, patch = MUSEUM.section("attention_flops", check="attention_is_causal")

patch(
    "prompt_without_a_mask",
    "mask",
    "a count in which new tokens look at tokens that come after them",
    "T · (P + T) looks: every new token sees those after it as well.",
    ("(n_new + 1) // 2", "n_new"),
)
patch(
    "past_is_forgotten",
    "formula",
    "a count in which nobody looks at what was cached",
    "Counts the triangle of the new tokens, and not the block of the cached ones.",
    ("n_new * n_past + ", ""),
)
patch(
    "blind_to_itself",
    "off by one",
    "a count in which a token does not look at itself",
    "T(T-1)/2: a token does not look at itself.",
    ("n_new + 1", "n_new - 1"),
)
patch(
    "last_token_stands_for_all",
    "formula",
    "a count in which only one of the new tokens looks",
    "P + T looks, right for one new token.",
    ("n_new * n_past + n_new * (n_new + 1) // 2", "n_past + n_new"),
)
patch(
    "scores_alone",
    "formula",
    "a count of the scores without the values",
    "Counts q · k, and forgets that the values are weighed and added.",
    ("4 *", "2 *"),
)
patch(
    "key_heads_ask",
    "formula",
    "a count in which only as many heads ask as there are key heads",
    "G heads in place of H: sharing keys saves bytes, not arithmetic.",
    ("n_heads", "n_kv_heads"),
)
patch(
    "one_layer_of_attention",
    "formula",
    "a count of the attention of one layer alone",
    "Forgets that each layer attends.",
    ("config.n_layers * ", ""),
)
patch(
    "two_rows_by_default",
    "arguments",
    "a count of two rows where no batch was asked for",
    "The default of the signature was changed while a batch was tried.",
    ("batch: int = 1", "batch: int = 2"),
)

# --- phase_cost ----------------------------------------------------------------------------------

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
    "head_is_forgotten",
    "formula",
    "a bill without the matrix that makes the logits",
    "Counts the layers; the last matrix stands after them.",
    (" + batch * C * V", ""),
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
    ("rows * weights", "rows * (weights - L * C * f)"),
)
patch(
    "keys_as_wide_as_queries",
    "formula",
    "a bill in which keys are as wide as queries",
    "4·C² for attention: wk and wv have only G·D columns.",
    ("rows * weights", "rows * L * (4 * C * C + 3 * C * f)"),
)
patch(
    "attention_left_out",
    "formula",
    "a bill without the FLOPs of attention",
    "2 · parameters · tokens, and nothing for looking back.",
    (" + attention_flops(config, n_new, n_past, batch)", ""),
)
patch(
    "batch_shares_the_work",
    "formula",
    "a bill in which a batch is calculated like one row",
    "A batch shares the weights, but not the arithmetic.",
    ("rows * weights + batch * C * V", "n_new * weights + C * V"),
)

bug, patch = MUSEUM.section("phase_cost", check="weights_are_read_once")

patch(
    "weights_for_every_token",
    "formula",
    "a bill in which weights are read again for every token",
    "Reads every matrix again for every token: prefill would be decode.",
    ("(weights + C * V)", "rows * (weights + C * V)"),
)
patch(
    "weights_for_every_row",
    "formula",
    "a bill in which every row of a batch reads the weights anew",
    "Multiplies the weights by the batch: batching would gain nothing.",
    ("(weights + C * V)", "batch * (weights + C * V)"),
)
patch(
    "whole_table_is_read",
    "formula",
    "a bill that reads the whole embedding table",
    "Bytes of all parameters: but of the embedding table a few rows are looked up.",
    ("(weights + C * V)", "(weights + C * V + (not config.tie_embeddings) * C * V)"),
)
patch(
    "tied_head_costs_nothing",
    "formula",
    "a bill in which a tied head need not be read",
    "Tied means stored once. The logits still read it.",
    ("(weights + C * V)", "(weights + (not config.tie_embeddings) * C * V)"),
)
patch(
    "weights_in_numbers",
    "formula",
    "a count of numbers where bytes were asked for",
    "Counts parameters and calls them bytes.",
    ("(weights + C * V) * bytes_per_element", "weights + C * V"),
)
patch(
    "layers_without_the_head",
    "formula",
    "a bill of the layers alone",
    "Adds the layers up and stops before lm_head.",
    ("(weights + C * V)", "weights"),
)

bug, patch = MUSEUM.section("phase_cost", check="cache_is_read_and_written")

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
    "new_tokens_are_not_read",
    "off by one",
    "a bill in which new tokens are written and not read",
    "Reads P rows: but a new token looks at itself as well.",
    ("(n_past + n_new)", "n_past"),
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
    ("batch * (n_past + n_new)", "(n_past + n_new)"),
    ("rows * token_bytes", "n_new * token_bytes"),
)
patch(
    "cache_is_read_by_every_token",
    "formula",
    "a bill in which each token of a chunk reads the cache anew",
    "Reads the cache once a token: but attention of a chunk reads it once.",
    ("batch * (n_past", "rows * (n_past"),
)
patch(
    "cache_is_written_anew",
    "writes",
    "a bill in which the whole cache is written in every pass",
    "As with torch.cat, every old row is written again.",
    ("rows * token_bytes", "batch * (n_past + n_new) * token_bytes"),
)
patch(
    "cache_in_numbers",
    "formula",
    "a count of the numbers in a cache, not of their bytes",
    "Leaves the element size out.",
    ("GD * bytes_per_element", "GD"),
)
patch(
    "bill_in_fp32_by_default",
    "arguments",
    "a bill in float32 where no width was asked for",
    "The default of the signature was changed to what a CPU calculates in.",
    ("bytes_per_element: int = 2", "bytes_per_element: int = 4"),
)

bug, patch = MUSEUM.section("phase_cost", check="activations_go_in_and_out")

patch(
    "activations_of_one_row",
    "formula",
    "a bill in which one row goes through, however many there are",
    "Decode of one user, for ever.",
    ("rows * widths + batch * (C + V)", "widths + C + V"),
)
patch(
    "activations_of_all_logits",
    "cost",
    "a bill for activations of logits that nobody asked for",
    "Lets every position go through lm_head.",
    ("batch * (C + V)", "rows * (C + V)"),
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
    "activations_in_numbers",
    "formula",
    "a count of activations, not of their bytes",
    "Leaves the element size out.",
    ("(rows * widths + batch * (C + V)) * bytes_per_element", "rows * widths + batch * (C + V)"),
)

# --- attainable and bound_by ---------------------------------------------------------------------

bug, patch = MUSEUM.section("attainable", check="roof_has_two_parts")

patch(
    "higher_roof",
    "formula",
    "a roof that is made of the higher of the two limits",
    "max in place of min: the roofs are turned upside down.",
    ("min(", "max("),
)


@bug("formula", "a roof that rises for ever")
def slope_without_an_end(intensity, machine):
    """Intensity times bandwidth, above every peak."""
    return intensity * machine.bytes_per_second


@bug("formula", "a roof that is flat everywhere")
def flat_everywhere(intensity, machine):
    """What the datasheet promises, whatever the work."""
    return machine.flops_per_second


patch(
    "bytes_for_flops",
    "formula",
    "a rate of bytes where one of FLOPs was asked for",
    "Compares FLOP/s with byte/s.",
    ("intensity * ", ""),
)


@bug("formula", "a machine that does not read while it calculates")
def one_after_the_other(intensity, machine):
    """Adds the two times: but a machine reads ahead while it calculates."""
    slope = intensity * machine.bytes_per_second
    return 1 / (1 / machine.flops_per_second + 1 / slope)


patch(
    "divides_by_the_intensity",
    "formula",
    "a rate that falls as the intensity rises",
    "Turns the unit round: byte/s over FLOP/byte.",
    ("intensity * machine.bytes_per_second", "machine.bytes_per_second / intensity"),
)

bug, patch = MUSEUM.section("bound_by", check="bound_is_the_lower_roof")

patch(
    "ridge_the_wrong_way_round",
    "choice",
    "a ridge whose two sides are exchanged",
    "> in place of <: decode would be compute-bound.",
    (" < ", " > "),
)
patch(
    "ridge_at_one",
    "formula",
    "a ridge that is the same on every machine",
    "Compares FLOPs with bytes, on every machine alike.",
    ("machine.balance", "1"),
)
patch(
    "weights_decide",
    "formula",
    "a bound that looks at the weights alone",
    "Forgets that a large batch reads more cache than weights.",
    ("cost.intensity", "cost.flops / cost.weight_bytes"),
)
patch(
    "activations_do_not_count",
    "formula",
    "a bound that leaves the activations out",
    "Adds up weights and cache.",
    ("cost.intensity", "cost.flops / (cost.bytes - cost.activation_bytes)"),
)
patch(
    "written_bytes_are_free",
    "formula",
    "a bound that leaves out what is written",
    "Adds up what is read, and not what is written.",
    ("cost.intensity", "cost.flops / (cost.bytes - cost.kv_written_bytes)"),
)


@bug("form", "a bool in the place of a word")
def says_whether(cost, machine):
    """Returns a bool where a word was asked for."""
    return cost.intensity < machine.balance


# --- time_on_device ------------------------------------------------------------------------------

WARM_UP = "    for _ in range(warmup):\n        fn()\n"
WAIT = "device.synchronize()\n        "
START = "start = device.now()\n        "
STOP = "seconds.append(device.now() - start)\n"

bug, patch = MUSEUM.section("time_on_device", check="clock_waits_for_the_work")

patch(
    "never_waits",
    "timing",
    "a clock that never waits for the work",
    "No synchronize around the repeats: microseconds for anything.",
    (WAIT + START, START),
    (WAIT + STOP, STOP),
    ("    seconds = []", "    device.synchronize()\n    seconds = []"),
)


@bug("timing", "readings that are kept in too few digits for this clock")
def keeps_readings_in_float32(fn, device, warmup=2, repeats=5):
    """torch.tensor makes float32 of the readings: a clock that has run for months loses its
    digits."""
    clock = SimpleNamespace(now=lambda: torch.tensor(device.now()), synchronize=device.synchronize)
    return right.time_on_device(fn, clock, warmup, repeats).item()


patch(
    "stops_the_clock_first",
    "timing",
    "a clock that is stopped before the work is waited for",
    "Reads the clock, then synchronizes.",
    (WAIT + STOP, STOP + "        device.synchronize()\n"),
)


@bug("timing", "a clock that is read once for all repeats, whose calls overlap")
def waits_once_for_all(fn, device, warmup=2, repeats=5):
    """One synchronize after the loop, divided by the repeats: calls overlap, and an outlier
    counts."""
    for _ in range(warmup):
        fn()
    device.synchronize()
    start = device.now()
    for _ in range(repeats):
        fn()
    device.synchronize()
    return (device.now() - start) / repeats


@bug("timing", "the time of all repeats together")
def all_repeats_together(fn, device, warmup=2, repeats=5):
    """Forgets to divide: the time of all calls."""
    for _ in range(warmup):
        fn()
    device.synchronize()
    start = device.now()
    for _ in range(repeats):
        fn()
        device.synchronize()
    return device.now() - start


@bug("timing", "a clock that is not the device's")
def another_clock(fn, device, warmup=2, repeats=5):
    """time.perf_counter: the wall's clock, where the device has its own."""
    clock = SimpleNamespace(now=time.perf_counter, synchronize=device.synchronize)
    return right.time_on_device(fn, clock, warmup, repeats)


patch(
    "one_start_for_all",
    "timing",
    "repeats that are all measured from one start",
    "Starts the clock before the loop: each repeat carries all before it.",
    (WAIT + START, ""),
    ("    seconds = []", "    device.synchronize()\n    start, seconds = device.now(), []"),
)

bug, patch = MUSEUM.section("time_on_device", check="warm_up_is_not_timed")

patch(
    "starts_while_busy",
    "timing",
    "a clock that starts while earlier work is still queued",
    "No synchronize before the loop: the first repeat pays for the warm-up's queue.",
    (WAIT + START, START),
)
patch(
    "waits_before_the_warm_up",
    "timing",
    "a wait that comes before the warm-up and not after it",
    "Synchronizes first and warms up then.",
    (WARM_UP, "    device.synchronize()\n" + WARM_UP),
    (WAIT + START, START),
)
patch(
    "clock_before_the_wait",
    "timing",
    "a clock that runs while old work is waited for",
    "Reads the clock, then synchronizes, then calls.",
    (WAIT + START, START + WAIT),
)
patch(
    "warm_up_counts",
    "timing",
    "a result in which the warm-up calls count",
    "One loop over warmup + repeats: compiling is measured.",
    (WARM_UP, ""),
    ("range(repeats)", "range(warmup + repeats)"),
)
patch(
    "no_warm_up",
    "timing",
    "a timer that never warms up",
    "Ignores warmup.",
    (WARM_UP, ""),
)
patch(
    "always_one_warm_up",
    "timing",
    "a timer that warms up once, whatever was asked",
    "Warms up once, whatever was asked.",
    (WARM_UP, "    fn()\n"),
)
patch(
    "one_warm_up_more",
    "timing",
    "a timer that warms up once more than asked",
    "range(warmup + 1): a call that nobody asked for.",
    ("range(warmup)", "range(warmup + 1)"),
)
patch(
    "waits_only_after_a_warm_up",
    "timing",
    "a wait that is left out when there is no warm-up",
    "synchronize stands in the warm-up's loop: with warmup=0 it never runs.",
    (WARM_UP, WARM_UP + "        device.synchronize()\n"),
    (WAIT + START, START),
)
patch(
    "three_repeats_by_default",
    "arguments",
    "a timer that repeats less often than its signature promised",
    "The default of the signature was changed to save time.",
    ("repeats: int = 5", "repeats: int = 3"),
)

bug, patch = MUSEUM.section("time_on_device", check="one_slow_repeat_changes_nothing")

patch(
    "takes_the_mean",
    "timing",
    "a mean in the place of a median",
    "One disturbed call drags the mean along.",
    ("statistics.median", "statistics.mean"),
)
patch(
    "takes_the_best",
    "timing",
    "the shortest of all repeats",
    "The luckiest call.",
    ("statistics.median", "min"),
)
patch(
    "takes_the_worst",
    "timing",
    "the longest of all repeats",
    "The unluckiest call.",
    ("statistics.median", "max"),
)
patch(
    "takes_the_last",
    "timing",
    "the time of the last repeat alone",
    "Overwrites the time in each turn of the loop.",
    ("statistics.median(seconds)", "seconds[-1]"),
)
patch(
    "middle_of_an_unsorted_list",
    "timing",
    "the middle of a list that nobody sorted",
    "Takes the middle of the list without sorting it.",
    ("statistics.median(seconds)", "seconds[repeats // 2]"),
)
