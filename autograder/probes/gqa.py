"""The probes of lesson 06 are those of its visible checks.

How many numbers were written into new tensors is counted in the student's process, and so a claim.
Whoever makes it up must replace the counter or compute outside of PyTorch, and still give the right
numbers for keys and values that nobody knew before: more work than the line that it saves. Nothing
that is kept outside helps: a tensor that was not handed in counts as new wherever it is used.
"""

from __future__ import annotations

from course.checks import gqa as visible

PROBES = {
    check.name: check.probe
    for check in (
        visible.heads_stand_in_a_row,
        visible.grouped_equals_repeated,
        visible.masks_reach_every_head,
        visible.nothing_is_expanded,
        visible.pooled_heads_are_means,
        visible.pooling_keeps_the_rest,
        visible.batch_fills_the_memory,
        visible.edge_of_the_memory,
    )
}
