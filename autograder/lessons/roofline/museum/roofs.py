"""Wrong answers to `attainable` and `bound_by`."""

from __future__ import annotations

from autograder.lessons.roofline.museum import MUSEUM
from course.minigpt import roofline as right

# --- attainable ----------------------------------------------------------------------------------

bug = MUSEUM.section("attainable", check="roof_has_two_parts")


@bug("formula", "a roof that rises for ever")
def slope_without_an_end(intensity, machine):
    """Intensity times bandwidth, above every peak."""
    return intensity * machine.bytes_per_second


@bug("formula", "a roof that is flat everywhere")
def flat_everywhere(intensity, machine):
    """What the datasheet promises, whatever the work."""
    return machine.flops_per_second


@bug("formula", "a machine that does not read while it calculates")
def one_after_the_other(intensity, machine):
    """Adds the two times: but a machine reads ahead while it calculates."""
    slope = intensity * machine.bytes_per_second
    return 1 / (1 / machine.flops_per_second + 1 / slope)


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

bug = MUSEUM.section("bound_by", check="bound_is_the_lower_roof")


@bug("form", "a bool in the place of a word")
def says_whether(cost, machine):
    """Returns a bool where a word was asked for."""
    return cost.intensity < machine.balance
