"""What goes wrong in lesson 05, and what is right in another style."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import time
from types import SimpleNamespace

import numpy as np
import torch

from autograder.lessons.exhibit import Bug, Variant
from course.measure.costs import Cost
from course.minigpt import roofline as reference
from course.minigpt.kv_cache import kv_cache_bytes
from course.minigpt.roofline import attainable, attention_flops

ATTENTION, MATRICES = "roofline.attention_is_causal", "roofline.matrices_match_the_counter"
WEIGHTS, CACHE = "roofline.weights_are_read_once", "roofline.cache_is_read_and_written"
ACTIVATIONS = "roofline.activations_go_in_and_out"
ROOF, BOUND = "roofline.roof_has_two_parts", "roofline.bound_is_the_lower_roof"
WAIT, WARM = "roofline.clock_waits_for_the_work", "roofline.warm_up_is_not_timed"
MEDIAN = "roofline.one_slow_repeat_changes_nothing"

# --- attention_flops -----------------------------------------------------------------------------


def _attention(config, pairs, batch, heads=None, per_pair=4):
    heads = heads or config.n_heads
    return batch * config.n_layers * heads * pairs * per_pair * config.head_dim


def prompt_without_a_mask(config, n_new, n_past, batch=1):
    return _attention(config, n_new * (n_past + n_new), batch)


def past_is_forgotten(config, n_new, n_past, batch=1):
    return _attention(config, n_new * (n_new + 1) // 2, batch)


def blind_to_itself(config, n_new, n_past, batch=1):
    return _attention(config, n_new * n_past + n_new * (n_new - 1) // 2, batch)


def last_token_stands_for_all(config, n_new, n_past, batch=1):
    return _attention(config, n_past + n_new, batch)


def scores_alone(config, n_new, n_past, batch=1):
    pairs = n_new * n_past + n_new * (n_new + 1) // 2
    return _attention(config, pairs, batch, per_pair=2)


def key_heads_ask(config, n_new, n_past, batch=1):
    pairs = n_new * n_past + n_new * (n_new + 1) // 2
    return _attention(config, pairs, batch, heads=config.n_kv_heads)


def one_layer_of_attention(config, n_new, n_past, batch=1):
    return reference.attention_flops(config, n_new, n_past, batch) // config.n_layers


# --- phase_cost ----------------------------------------------------------------------------------


def _changed(cost: Cost, **fields: int) -> Cost:
    return dataclasses.replace(cost, **fields)


def _right(config, n_new, n_past, batch, bytes_per_element) -> Cost:
    return reference.phase_cost(config, n_new, n_past, batch, bytes_per_element)


def _layer_weights(config) -> int:
    C, kv = config.d_model, config.n_kv_heads * config.head_dim
    return config.n_layers * (2 * C * C + 2 * C * kv + 3 * C * config.d_ff)


def multiply_add_as_one(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    looks = attention_flops(config, n_new, n_past, batch)
    return _changed(cost, flops=looks + (cost.flops - looks) // 2)


def logits_of_every_position(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    more = 2 * batch * (n_new - 1) * config.d_model * config.vocab_size
    return _changed(cost, flops=cost.flops + more)


def head_is_forgotten(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, flops=cost.flops - 2 * batch * config.d_model * config.vocab_size)


def embedding_is_multiplied(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    more = 2 * batch * n_new * config.d_model * config.vocab_size
    return _changed(cost, flops=cost.flops + more)


def two_matrices_in_the_mlp(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    less = 2 * batch * n_new * config.n_layers * config.d_model * config.d_ff
    return _changed(cost, flops=cost.flops - less)


def keys_as_wide_as_queries(config, n_new, n_past, batch=1, bytes_per_element=2):
    wide = dataclasses.replace(config, n_kv_heads=config.n_heads)
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, flops=_right(wide, n_new, n_past, batch, bytes_per_element).flops)


def attention_left_out(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, flops=cost.flops - attention_flops(config, n_new, n_past, batch))


def batch_shares_the_work(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    looks = attention_flops(config, n_new, n_past, batch)
    return _changed(cost, flops=looks + (cost.flops - looks) // batch)


def weights_for_every_token(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, weight_bytes=cost.weight_bytes * n_new * batch)


def weights_for_every_row(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, weight_bytes=cost.weight_bytes * batch)


def whole_table_is_read(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    table = config.d_model * config.vocab_size * bytes_per_element
    return _changed(cost, weight_bytes=cost.weight_bytes + table * (not config.tie_embeddings))


def tied_head_costs_nothing(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    table = config.d_model * config.vocab_size * bytes_per_element
    return _changed(cost, weight_bytes=cost.weight_bytes - table * config.tie_embeddings)


def weights_in_numbers(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, weight_bytes=cost.weight_bytes // bytes_per_element)


def layers_without_the_head(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, weight_bytes=_layer_weights(config) * bytes_per_element)


def no_cache_in_the_bill(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, kv_read_bytes=0, kv_written_bytes=0)


def cache_of_query_heads(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost, share = _right(config, n_new, n_past, batch, bytes_per_element), config.n_heads
    share //= config.n_kv_heads
    return _changed(
        cost,
        kv_read_bytes=cost.kv_read_bytes * share,
        kv_written_bytes=cost.kv_written_bytes * share,
    )


def new_tokens_are_not_read(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, kv_read_bytes=cost.kv_read_bytes - cost.kv_written_bytes)


def keys_without_values(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(
        cost,
        kv_read_bytes=cost.kv_read_bytes // 2,
        kv_written_bytes=cost.kv_written_bytes // 2,
    )


def batch_shares_a_cache(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(
        cost,
        kv_read_bytes=cost.kv_read_bytes // batch,
        kv_written_bytes=cost.kv_written_bytes // batch,
    )


def cache_is_read_by_every_token(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, kv_read_bytes=cost.kv_read_bytes * n_new)


def cache_is_written_anew(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, kv_written_bytes=cost.kv_read_bytes)


def cache_in_numbers(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(
        cost,
        kv_read_bytes=cost.kv_read_bytes // bytes_per_element,
        kv_written_bytes=cost.kv_written_bytes // bytes_per_element,
    )


def activations_of_one_row(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    one = _right(config, 1, 0, 1, bytes_per_element)
    return _changed(cost, activation_bytes=one.activation_bytes)


def activations_of_all_logits(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    more = batch * (n_new - 1) * (config.d_model + config.vocab_size) * bytes_per_element
    return _changed(cost, activation_bytes=cost.activation_bytes + more)


def activations_go_in_only(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    kv = config.n_kv_heads * config.head_dim
    out = 3 * config.d_model + 2 * kv + 2 * config.d_ff
    less = batch * (n_new * config.n_layers * out + config.vocab_size)
    return _changed(cost, activation_bytes=cost.activation_bytes - less * bytes_per_element)


def activations_in_numbers(config, n_new, n_past, batch=1, bytes_per_element=2):
    cost = _right(config, n_new, n_past, batch, bytes_per_element)
    return _changed(cost, activation_bytes=cost.activation_bytes // bytes_per_element)


# --- attainable, bound_by ------------------------------------------------------------------------


def higher_roof(intensity, machine):
    return max(machine.flops_per_second, intensity * machine.bytes_per_second)


def slope_without_an_end(intensity, machine):
    return intensity * machine.bytes_per_second


def flat_everywhere(intensity, machine):
    return machine.flops_per_second


def bytes_for_flops(intensity, machine):
    return min(machine.flops_per_second, machine.bytes_per_second)


def one_after_the_other(intensity, machine):
    slope = intensity * machine.bytes_per_second
    return 1 / (1 / machine.flops_per_second + 1 / slope)


def divides_by_the_intensity(intensity, machine):
    return min(machine.flops_per_second, machine.bytes_per_second / intensity)


def ridge_the_wrong_way_round(cost, machine):
    return "memory" if cost.intensity > machine.balance else "compute"


def ridge_at_one(cost, machine):
    return "memory" if cost.intensity < 1 else "compute"


def weights_decide(cost, machine):
    return "memory" if cost.flops < cost.weight_bytes * machine.balance else "compute"


def activations_do_not_count(cost, machine):
    moved = cost.bytes - cost.activation_bytes
    return "memory" if cost.flops < moved * machine.balance else "compute"


def written_bytes_are_free(cost, machine):
    moved = cost.bytes - cost.kv_written_bytes
    return "memory" if cost.flops < moved * machine.balance else "compute"


def says_whether(cost, machine):
    return cost.intensity < machine.balance


# --- time_on_device ------------------------------------------------------------------------------


def never_waits(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    device.synchronize()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        fn()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def stops_the_clock_first(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        end = device.now()
        device.synchronize()
        seconds.append(end - start)
    return statistics.median(seconds)


def waits_once_for_all(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    device.synchronize()
    start = device.now()
    for _ in range(repeats):
        fn()
    device.synchronize()
    return (device.now() - start) / repeats


def all_repeats_together(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    device.synchronize()
    start = device.now()
    for _ in range(repeats):
        fn()
        device.synchronize()
    return device.now() - start


def another_clock(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = time.perf_counter()
        fn()
        device.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def one_start_for_all(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    device.synchronize()
    start, seconds = device.now(), []
    for _ in range(repeats):
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def starts_while_busy(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def waits_before_the_warm_up(fn, device, warmup=2, repeats=5):
    device.synchronize()
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def clock_before_the_wait(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        device.synchronize()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def warm_up_counts(fn, device, warmup=2, repeats=5):
    seconds = []
    for _ in range(warmup + repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def no_warm_up(fn, device, warmup=2, repeats=5):
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def always_one_warm_up(fn, device, warmup=2, repeats=5):
    fn()
    return no_warm_up(fn, device, 0, repeats)


def one_warm_up_more(fn, device, warmup=2, repeats=5):
    for _ in range(warmup + 1):
        fn()
    return no_warm_up(fn, device, 0, repeats)


def waits_only_after_a_warm_up(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
        device.synchronize()
    seconds = []
    for _ in range(repeats):
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return statistics.median(seconds)


def _times(fn, device, warmup, repeats):
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        seconds.append(device.now() - start)
    return seconds


def takes_the_mean(fn, device, warmup=2, repeats=5):
    return statistics.mean(_times(fn, device, warmup, repeats))


def keeps_readings_in_float32(fn, device, warmup=2, repeats=5):
    for _ in range(warmup):
        fn()
    readings = []
    for _ in range(repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        readings.append([start, device.now()])
    start, end = torch.tensor(readings).unbind(dim=1)  # (repeats,) each
    return float((end - start).median())


def takes_the_best(fn, device, warmup=2, repeats=5):
    return min(_times(fn, device, warmup, repeats))


def takes_the_worst(fn, device, warmup=2, repeats=5):
    return max(_times(fn, device, warmup, repeats))


def takes_the_last(fn, device, warmup=2, repeats=5):
    return _times(fn, device, warmup, repeats)[-1]


def middle_of_an_unsorted_list(fn, device, warmup=2, repeats=5):
    return _times(fn, device, warmup, repeats)[repeats // 2]


def _bug(function, story: str, check: str, family: str, mistake: str) -> Bug:
    answers = {
        **{ATTENTION: "attention_flops", ROOF: "attainable", BOUND: "bound_by"},
        **dict.fromkeys((MATRICES, WEIGHTS, CACHE, ACTIVATIONS), "phase_cost"),
        **dict.fromkeys((WAIT, WARM, MEDIAN), "time_on_device"),
    }
    return Bug(function.__name__, story, check, family, mistake, {answers[check]: function})


BUGS = [
    _bug(
        prompt_without_a_mask,
        "T · (P + T) looks: every new token sees those after it as well.",
        ATTENTION,
        "mask",
        "a count in which new tokens look at tokens that come after them",
    ),
    _bug(
        past_is_forgotten,
        "Counts the triangle of the new tokens, and not the block of the cached ones.",
        ATTENTION,
        "formula",
        "a count in which nobody looks at what was cached",
    ),
    _bug(
        blind_to_itself,
        "T(T-1)/2: a token does not look at itself.",
        ATTENTION,
        "off by one",
        "a count in which a token does not look at itself",
    ),
    _bug(
        last_token_stands_for_all,
        "P + T looks, right for one new token.",
        ATTENTION,
        "formula",
        "a count in which only one of the new tokens looks",
    ),
    _bug(
        scores_alone,
        "Counts q · k, and forgets that the values are weighed and added.",
        ATTENTION,
        "formula",
        "a count of the scores without the values",
    ),
    _bug(
        key_heads_ask,
        "G heads in place of H: sharing keys saves bytes, not arithmetic.",
        ATTENTION,
        "formula",
        "a count in which only as many heads ask as there are key heads",
    ),
    _bug(
        one_layer_of_attention,
        "Forgets that each layer attends.",
        ATTENTION,
        "formula",
        "a count of the attention of one layer alone",
    ),
    _bug(
        multiply_add_as_one,
        "Takes one multiply-add for one operation: half of the FLOPs.",
        MATRICES,
        "formula",
        "a count in which a multiplication and its addition are one operation",
    ),
    _bug(
        logits_of_every_position,
        "Bills a prompt for logits that nobody asks for.",
        MATRICES,
        "cost",
        "a bill for the logits of every position",
    ),
    _bug(
        head_is_forgotten,
        "Counts the layers; the last matrix stands after them.",
        MATRICES,
        "formula",
        "a bill without the matrix that makes the logits",
    ),
    _bug(
        embedding_is_multiplied,
        "Takes looking rows up for a product with one-hot rows.",
        MATRICES,
        "formula",
        "a bill in which looking up an embedding is a matrix product",
    ),
    _bug(
        two_matrices_in_the_mlp,
        "GPT-2's MLP has two matrices; SwiGLU has three.",
        MATRICES,
        "formula",
        "a bill in which the feed-forward part has two matrices",
    ),
    _bug(
        keys_as_wide_as_queries,
        "4·C² for attention: wk and wv have only G·D columns.",
        MATRICES,
        "formula",
        "a bill in which keys are as wide as queries",
    ),
    _bug(
        attention_left_out,
        "2 · parameters · tokens, and nothing for looking back.",
        MATRICES,
        "formula",
        "a bill without the FLOPs of attention",
    ),
    _bug(
        batch_shares_the_work,
        "A batch shares the weights, but not the arithmetic.",
        MATRICES,
        "formula",
        "a bill in which a batch is calculated like one row",
    ),
    _bug(
        weights_for_every_token,
        "Reads every matrix again for every token: prefill would be decode.",
        WEIGHTS,
        "formula",
        "a bill in which weights are read again for every token",
    ),
    _bug(
        weights_for_every_row,
        "Multiplies the weights by the batch: batching would gain nothing.",
        WEIGHTS,
        "formula",
        "a bill in which every row of a batch reads the weights anew",
    ),
    _bug(
        whole_table_is_read,
        "Bytes of all parameters: but of the embedding table a few rows are looked up.",
        WEIGHTS,
        "formula",
        "a bill that reads the whole embedding table",
    ),
    _bug(
        tied_head_costs_nothing,
        "Tied means stored once. The logits still read it.",
        WEIGHTS,
        "formula",
        "a bill in which a tied head need not be read",
    ),
    _bug(
        weights_in_numbers,
        "Counts parameters and calls them bytes.",
        WEIGHTS,
        "formula",
        "a count of numbers where bytes were asked for",
    ),
    _bug(
        layers_without_the_head,
        "Adds the layers up and stops before lm_head.",
        WEIGHTS,
        "formula",
        "a bill of the layers alone",
    ),
    _bug(
        no_cache_in_the_bill,
        "Weights only: fine for a short text and one user.",
        CACHE,
        "formula",
        "a bill without the cache",
    ),
    _bug(
        cache_of_query_heads,
        "H heads in place of G: what GQA saves is billed.",
        CACHE,
        "formula",
        "a bill for a cache of as many heads as there are queries",
    ),
    _bug(
        new_tokens_are_not_read,
        "Reads P rows: but a new token looks at itself as well.",
        CACHE,
        "off by one",
        "a bill in which new tokens are written and not read",
    ),
    _bug(
        keys_without_values,
        "A cache holds two tensors.",
        CACHE,
        "formula",
        "a bill for keys, without values",
    ),
    _bug(
        batch_shares_a_cache,
        "The weights are shared, so the cache seems to be.",
        CACHE,
        "formula",
        "a bill in which all rows of a batch share one cache",
    ),
    _bug(
        cache_is_read_by_every_token,
        "Reads the cache once a token: but attention of a chunk reads it once.",
        CACHE,
        "formula",
        "a bill in which each token of a chunk reads the cache anew",
    ),
    _bug(
        cache_is_written_anew,
        "As with torch.cat, every old row is written again.",
        CACHE,
        "writes",
        "a bill in which the whole cache is written in every pass",
    ),
    _bug(
        cache_in_numbers,
        "Leaves the element size out.",
        CACHE,
        "formula",
        "a count of the numbers in a cache, not of their bytes",
    ),
    _bug(
        activations_of_one_row,
        "Decode of one user, for ever.",
        ACTIVATIONS,
        "formula",
        "a bill in which one row goes through, however many there are",
    ),
    _bug(
        activations_of_all_logits,
        "Lets every position go through lm_head.",
        ACTIVATIONS,
        "cost",
        "a bill for activations of logits that nobody asked for",
    ),
    _bug(
        activations_go_in_only,
        "Counts what is read and not what is written.",
        ACTIVATIONS,
        "formula",
        "a bill for what goes into the matrices, without what comes out",
    ),
    _bug(
        activations_in_numbers,
        "Leaves the element size out.",
        ACTIVATIONS,
        "formula",
        "a count of activations, not of their bytes",
    ),
    _bug(
        higher_roof,
        "max in place of min: the roofs are turned upside down.",
        ROOF,
        "formula",
        "a roof that is made of the higher of the two limits",
    ),
    _bug(
        slope_without_an_end,
        "Intensity times bandwidth, above every peak.",
        ROOF,
        "formula",
        "a roof that rises for ever",
    ),
    _bug(
        flat_everywhere,
        "What the datasheet promises, whatever the work.",
        ROOF,
        "formula",
        "a roof that is flat everywhere",
    ),
    _bug(
        bytes_for_flops,
        "Compares FLOP/s with byte/s.",
        ROOF,
        "formula",
        "a rate of bytes where one of FLOPs was asked for",
    ),
    _bug(
        one_after_the_other,
        "Adds the two times: but a machine reads ahead while it calculates.",
        ROOF,
        "formula",
        "a machine that does not read while it calculates",
    ),
    _bug(
        divides_by_the_intensity,
        "Turns the unit round: byte/s over FLOP/byte.",
        ROOF,
        "formula",
        "a rate that falls as the intensity rises",
    ),
    _bug(
        ridge_the_wrong_way_round,
        "> in place of <: decode would be compute-bound.",
        BOUND,
        "choice",
        "a ridge whose two sides are exchanged",
    ),
    _bug(
        ridge_at_one,
        "Compares FLOPs with bytes, on every machine alike.",
        BOUND,
        "formula",
        "a ridge that is the same on every machine",
    ),
    _bug(
        weights_decide,
        "Forgets that a large batch reads more cache than weights.",
        BOUND,
        "formula",
        "a bound that looks at the weights alone",
    ),
    _bug(
        activations_do_not_count,
        "Adds up weights and cache.",
        BOUND,
        "formula",
        "a bound that leaves the activations out",
    ),
    _bug(
        written_bytes_are_free,
        "Adds up what is read, and not what is written.",
        BOUND,
        "formula",
        "a bound that leaves out what is written",
    ),
    _bug(
        says_whether,
        "Returns a bool where a word was asked for.",
        BOUND,
        "form",
        "a bool in the place of a word",
    ),
    _bug(
        never_waits,
        "No synchronize around the repeats: microseconds for anything.",
        WAIT,
        "timing",
        "a clock that never waits for the work",
    ),
    _bug(
        keeps_readings_in_float32,
        "torch.tensor makes float32 of the readings: a clock that has run for months loses its digits.",
        WAIT,
        "timing",
        "readings that are kept in too few digits for this clock",
    ),
    _bug(
        stops_the_clock_first,
        "Reads the clock, then synchronizes.",
        WAIT,
        "timing",
        "a clock that is stopped before the work is waited for",
    ),
    _bug(
        waits_once_for_all,
        "One synchronize after the loop, divided by the repeats: calls overlap, and an outlier counts.",
        WAIT,
        "timing",
        "a clock that is read once for all repeats, whose calls overlap",
    ),
    _bug(
        all_repeats_together,
        "Forgets to divide: the time of all calls.",
        WAIT,
        "timing",
        "the time of all repeats together",
    ),
    _bug(
        another_clock,
        "time.perf_counter: the wall's clock, where the device has its own.",
        WAIT,
        "timing",
        "a clock that is not the device's",
    ),
    _bug(
        one_start_for_all,
        "Starts the clock before the loop: each repeat carries all before it.",
        WAIT,
        "timing",
        "repeats that are all measured from one start",
    ),
    _bug(
        starts_while_busy,
        "No synchronize before the loop: the first repeat pays for the warm-up's queue.",
        WARM,
        "timing",
        "a clock that starts while earlier work is still queued",
    ),
    _bug(
        waits_before_the_warm_up,
        "Synchronizes first and warms up then.",
        WARM,
        "timing",
        "a wait that comes before the warm-up and not after it",
    ),
    _bug(
        clock_before_the_wait,
        "Reads the clock, then synchronizes, then calls.",
        WARM,
        "timing",
        "a clock that runs while old work is waited for",
    ),
    _bug(
        warm_up_counts,
        "One loop over warmup + repeats: compiling is measured.",
        WARM,
        "timing",
        "a result in which the warm-up calls count",
    ),
    _bug(
        no_warm_up,
        "Ignores warmup.",
        WARM,
        "timing",
        "a timer that never warms up",
    ),
    _bug(
        always_one_warm_up,
        "Warms up once, whatever was asked.",
        WARM,
        "timing",
        "a timer that warms up once, whatever was asked",
    ),
    _bug(
        one_warm_up_more,
        "range(warmup + 1): a call that nobody asked for.",
        WARM,
        "timing",
        "a timer that warms up once more than asked",
    ),
    _bug(
        waits_only_after_a_warm_up,
        "synchronize stands in the warm-up's loop: with warmup=0 it never runs.",
        WARM,
        "timing",
        "a wait that is left out when there is no warm-up",
    ),
    _bug(
        takes_the_mean,
        "One disturbed call drags the mean along.",
        MEDIAN,
        "timing",
        "a mean in the place of a median",
    ),
    _bug(
        takes_the_best,
        "The luckiest call.",
        MEDIAN,
        "timing",
        "the shortest of all repeats",
    ),
    _bug(
        takes_the_worst,
        "The unluckiest call.",
        MEDIAN,
        "timing",
        "the longest of all repeats",
    ),
    _bug(
        takes_the_last,
        "Overwrites the time in each turn of the loop.",
        MEDIAN,
        "timing",
        "the time of the last repeat alone",
    ),
    _bug(
        middle_of_an_unsorted_list,
        "Takes the middle of the list without sorting it.",
        MEDIAN,
        "timing",
        "the middle of a list that nobody sorted",
    ),
]

# --- right in another style ----------------------------------------------------------------------


def attention_token_by_token(config, n_new: int, n_past: int, batch: int = 1) -> int:
    looks = sum(n_past + own + 1 for own in range(n_new))
    flops_of_a_look = 2 * config.head_dim + 2 * config.head_dim
    return flops_of_a_look * config.n_heads * config.n_layers * batch * looks


def attention_by_a_mask(config, n_new: int, n_past: int, batch: int = 1) -> int:
    mask = torch.ones(n_new, n_past + n_new).tril(diagonal=n_past)
    return int(mask.sum()) * 4 * config.d_model * config.n_layers * batch


def attention_on_average(config, n_new: int, n_past: int, batch: int = 1) -> float:
    average = n_past + (n_new + 1) / 2
    return 4.0 * batch * config.n_layers * config.d_model * n_new * average


def attention_as_an_array(config, n_new: int, n_past: int, batch: int = 1):
    visible = np.arange(n_past + 1, n_past + n_new + 1)
    return 4 * batch * config.n_layers * config.d_model * visible.sum()


def cost_in_one_formula(
    config, n_new: int, n_past: int, batch: int = 1, bytes_per_element: int = 2
) -> Cost:
    """By the closed formula for all parameters."""
    L, C, f, V = config.n_layers, config.d_model, config.d_ff, config.vocab_size
    GD = config.n_kv_heads * config.head_dim
    in_layers = L * (C * (C + 2 * GD) + C**2 + 3 * C * f)
    matrices = in_layers + V * C
    cached = kv_cache_bytes(config, n_past + n_new, batch, bytes_per_element)
    added = kv_cache_bytes(config, n_new, batch, bytes_per_element)
    linear = 2 * batch * n_new * (matrices - V * C) + 2 * batch * V * C
    rows = batch * n_new * L * (9 * C + 2 * GD + 3 * f) + batch * (C + V)
    return Cost(
        linear + attention_flops(config, n_new, n_past, batch),
        matrices * bytes_per_element,
        cached,
        added,
        rows * bytes_per_element,
    )


def cost_product_by_product(
    config, n_new: int, n_past: int, batch: int = 1, bytes_per_element: int = 2
) -> Cost:
    """A list of all products, each as (rows, in, out), layer after layer."""
    C, D = config.d_model, config.head_dim
    outs = {"q": config.n_heads * D, "k": config.n_kv_heads * D, "v": config.n_kv_heads * D}
    m = batch * n_new
    products = []
    for _ in range(config.n_layers):
        products += [(m, C, out) for out in outs.values()] + [(m, outs["q"], C)]
        products += [(m, C, config.d_ff)] * 2 + [(m, config.d_ff, C)]
    products.append((batch, C, config.vocab_size))
    flops = sum(2 * m * k * n for m, k, n in products)
    read = written = 0
    for _ in range(config.n_layers):
        for _ in ("keys", "values"):
            read += batch * config.n_kv_heads * (n_past + n_new) * D * bytes_per_element
            written += batch * config.n_kv_heads * n_new * D * bytes_per_element
    return Cost(
        flops=flops + attention_flops(config, n_new, n_past, batch),
        weight_bytes=sum(k * n for _, k, n in products) * bytes_per_element,
        kv_read_bytes=read,
        kv_written_bytes=written,
        activation_bytes=sum(m * (k + n) for m, k, n in products) * bytes_per_element,
    )


def cost_with_attention_inside(
    config, n_new: int, n_past: int, batch: int = 1, bytes_per_element: int = 2
) -> Cost:
    """Calls nothing, and counts in floats."""
    L, C, f, V = config.n_layers, config.d_model, config.d_ff, config.vocab_size
    kv = float(config.n_kv_heads * config.head_dim)
    weights = 2.0 * C * C + 2 * C * kv + 3.0 * C * f
    looks = n_new * n_past + n_new * (n_new + 1) / 2
    flops = 2.0 * batch * n_new * L * weights + 2.0 * batch * C * V + 4 * batch * L * C * looks
    token = 2 * L * kv * bytes_per_element
    rows_in = 6 * C + f
    rows_out = 3 * C + 2 * kv + 2 * f
    return Cost(
        flops,
        (L * weights + C * V) * bytes_per_element,
        token * batch * (n_past + n_new),
        token * batch * n_new,
        (batch * n_new * L * (rows_in + rows_out) + batch * (C + V)) * bytes_per_element,
    )


def cost_as_a_record(
    config, n_new: int, n_past: int, batch: int = 1, bytes_per_element: int = 2
) -> SimpleNamespace:
    """Any object with the five fields."""
    cost = cost_product_by_product(config, n_new, n_past, batch, bytes_per_element)
    return SimpleNamespace(**dataclasses.asdict(cost))


def attainable_by_branches(intensity: float, machine) -> float:
    if intensity >= machine.balance:
        return machine.flops_per_second
    return machine.bytes_per_second * intensity


def attainable_by_time(intensity: float, machine) -> float:
    seconds_a_byte = max(1 / machine.bytes_per_second, intensity / machine.flops_per_second)
    return intensity / seconds_a_byte


def attainable_in_numpy(intensity: float, machine) -> np.floating:
    return np.minimum(machine.flops_per_second, np.float64(intensity) * machine.bytes_per_second)


def attainable_as_a_share(intensity: float, machine) -> float:
    return machine.flops_per_second * min(1.0, intensity / machine.balance)


def bound_by_time(cost: Cost, machine) -> str:
    moving = cost.bytes / machine.bytes_per_second
    return "compute" if cost.flops / machine.flops_per_second > moving else "memory"


def bound_by_the_roof(cost: Cost, machine) -> str:
    slope = cost.intensity * machine.bytes_per_second
    return "memory" if math.isclose(attainable(cost.intensity, machine), slope) else "compute"


def bound_by_an_index(cost: Cost, machine) -> str:
    parts = cost.weight_bytes + cost.kv_read_bytes + cost.kv_written_bytes + cost.activation_bytes
    return ("memory", "compute")[bool(cost.flops / parts >= machine.balance)]


def bound_in_numpy(cost: Cost, machine) -> str:
    times = [cost.bytes / machine.bytes_per_second, cost.flops / machine.flops_per_second]
    return np.array(["memory", "compute"])[np.argmax(times)]


def timer_that_waits_often(fn, device, warmup: int = 2, repeats: int = 5) -> float:
    def waited() -> float:
        device.synchronize()
        return device.now()

    for _ in range(warmup):
        fn()
        device.synchronize()
    times = np.empty(repeats)
    for repeat in range(repeats):
        before = waited()
        fn()
        times[repeat] = waited() - before
    return float(np.median(times))


def timer_that_waits_once_between(fn, device, warmup: int = 2, repeats: int = 5) -> float:
    """One wait ends a repeat and begins the next."""
    for _ in range(warmup):
        fn()
    device.synchronize()
    stamps = [device.now()]
    for _ in range(repeats):
        fn()
        device.synchronize()
        stamps.append(device.now())
    times = sorted(later - earlier for earlier, later in itertools.pairwise(stamps))
    return times[len(times) // 2]


def timer_of_all_calls(fn, device, warmup: int = 2, repeats: int = 5) -> float:
    """Times the warm-up as well, and throws it away."""
    device.synchronize()
    times = []
    for _ in range(warmup + repeats):
        start = device.now()
        fn()
        device.synchronize()
        times.append(device.now() - start)
    return statistics.median(times[warmup:])


def timer_in_torch(fn, device, warmup: int = 2, repeats: int = 5) -> float:
    times = []
    for call in range(warmup + repeats):
        device.synchronize()
        start = device.now()
        fn()
        device.synchronize()
        if call >= warmup:
            times.append(device.now() - start)
    return torch.tensor(times).median().item()


VARIANTS = [
    Variant(
        "one_formula",
        {
            "attention_flops": attention_token_by_token,
            "phase_cost": cost_in_one_formula,
            "attainable": attainable_by_branches,
            "bound_by": bound_by_time,
            "time_on_device": timer_that_waits_often,
        },
    ),
    Variant(
        "product_by_product",
        {
            "phase_cost": cost_product_by_product,
            "attainable": attainable_by_time,
            "bound_by": bound_by_the_roof,
            "time_on_device": timer_that_waits_once_between,
        },
    ),
    Variant(
        "floats",
        {
            "attention_flops": attention_on_average,
            "phase_cost": cost_with_attention_inside,
            "attainable": attainable_as_a_share,
            "bound_by": bound_by_an_index,
            "time_on_device": timer_of_all_calls,
        },
    ),
    Variant(
        "records_and_numpy",
        {
            "phase_cost": cost_as_a_record,
            "attainable": attainable_in_numpy,
            "bound_by": bound_in_numpy,
            "time_on_device": timer_in_torch,
        },
    ),
    Variant("attention_by_a_mask", {"attention_flops": attention_by_a_mask}),
    Variant("attention_as_an_array", {"attention_flops": attention_as_an_array}),
]
