"""Wrong answers to `attainable` and `bound_by`."""

from __future__ import annotations

from autograder.lessons.roofline.museum import MUSEUM
from course.minigpt import roofline as right

# --- attainable ----------------------------------------------------------------------------------

bug, patch = MUSEUM.section("attainable", check="roof_has_two_parts")

patch(
    "higher_roof",
    "formula",
    "a roof that is made of the higher of the two limits",
    "max in place of min, or the two sides of the ridge exchanged.",
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
patch(
    "rate_of_bytes",
    "formula",
    "the rate at which bytes arrive at such work, not the rate of its FLOPs",
    "FLOP/s over FLOP/byte is byte/s.",
    (
        "machine.flops_per_second, intensity * machine.bytes_per_second",
        "machine.flops_per_second / intensity, machine.bytes_per_second",
    ),
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


@bug("formula", "seconds for one FLOP where a rate was asked for")
def seconds_of_one_flop(intensity, machine):
    """The longer of two times: right, and upside down."""
    return 1 / right.attainable(intensity, machine)


@bug("formula", "the part of the peak that can be reached, not a rate")
def share_of_the_peak(intensity, machine):
    """1 on the flat roof."""
    return min(1.0, intensity / machine.balance)


@bug("formula", "a roof of one machine, whatever machine is asked for")
def roof_of_the_imagined_machine(intensity, machine):
    """The numbers of the picture above, copied."""
    return min(100e12, intensity * 1e12)


patch(
    "intensity_in_whole_numbers",
    "rounding",
    "an intensity of which only the whole part counts",
    "int(…) or //: work below one FLOP for each byte gets nothing.",
    ("intensity * ", "int(intensity) * "),
    kind="sizes",
)
patch(
    "intensity_of_at_least_one",
    "formula",
    "a roof on which no work does less than one FLOP for each byte",
    "Does not believe that work may do less than a FLOP for each byte it moves.",
    ("intensity * ", "max(1, intensity) * "),
    kind="sizes",
)


@bug("rounding", "a ridge at a whole number of FLOPs for each byte")
def ridge_at_a_whole_number(intensity, machine):
    """// in the balance: a little left of the ridge the roof is flat already."""
    if intensity < machine.flops_per_second // machine.bytes_per_second:
        return intensity * machine.bytes_per_second
    return machine.flops_per_second


RATES = {}


@bug("state", "rates that are kept from another machine", kind="results")
def keeps_rates_by_intensity(intensity, machine):
    """A dict of results whose keys are intensities: another machine gets the first one's rate."""
    return RATES.setdefault(intensity, right.attainable(intensity, machine))


# --- bound_by ------------------------------------------------------------------------------------

bug, patch = MUSEUM.section("bound_by", check="bound_is_the_lower_roof")

patch(
    "ridge_the_wrong_way_round",
    "choice",
    "a ridge whose two sides are exchanged",
    "> in place of <: decode would be compute-bound.",
    (" < ", " > "),
)
patch(
    "ridge_far_to_the_left",
    "formula",
    "a ridge so far to the left that all work lies right of it",
    "Compares FLOPs with bytes, on every machine alike; or takes bytes over FLOPs for the balance.",
    ("machine.balance", "1"),
)
patch(
    "ridge_far_to_the_right",
    "formula",
    "a ridge so far to the right that all work lies left of it",
    "Compares FLOP/byte with FLOP/s; or decode was all that was tried.",
    ("machine.balance", "machine.flops_per_second"),
)
patch(
    "ridge_at_a_hundred",
    "formula",
    "a ridge at the same place on every machine",
    "The imagined machine of the picture, for every one.",
    ("machine.balance", "100"),
    kind="sizes",
)
patch(
    "compares_whole_numbers",
    "rounding",
    "a bound that compares whole numbers",
    "round(…) on both sides: close to the ridge they are equal.",
    ("cost.intensity < machine.balance", "round(cost.intensity) < round(machine.balance)"),
    kind="sizes",
)
patch(
    "weights_decide",
    "formula",
    "a bound that looks at the weights alone",
    "Forgets that a large batch reads more cache than weights.",
    ("cost.intensity", "cost.flops / cost.weight_bytes"),
)
patch(
    "weights_and_reads_decide",
    "formula",
    "a bound that looks at weights and at what is read of the cache alone",
    "The two that the lesson talks about; a Cost has four.",
    ("cost.intensity", "cost.flops / (cost.weight_bytes + cost.kv_read_bytes)"),
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


patch(
    "words_in_capitals",
    "form",
    "words that begin with a capital",
    "As in a heading.",
    ('"memory" if', '"Memory" if'),
    ('else "compute"', 'else "Compute"'),
)
patch(
    "words_of_its_own",
    "form",
    "two words for each of the two that were asked for",
    "As in the text: memory-bound.",
    ('"memory" if', '"memory-bound" if'),
    ('else "compute"', 'else "compute-bound"'),
)
patch(
    "prints_the_word",
    "form",
    "a word that is printed and not returned",
    "print(…) shows the same in a notebook.",
    ('return "memory" if cost.intensity < machine.balance else "compute"', "return None"),
)
