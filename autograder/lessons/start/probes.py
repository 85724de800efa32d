"""The probes of lesson 00 are those of its visible checks."""

from __future__ import annotations

from course.checks import start as visible

PROBES = {
    check.name: check.probe
    for check in (
        visible.flops_of_one_dot_product,
        visible.flops_of_any_product,
        visible.bytes_of_three_matrices,
        visible.bytes_follow_the_element_size,
    )
}
