"""The probes of lesson 06 are those of its visible checks.

How many numbers were written into new tensors is counted in the student's process, and so a claim.
A tensor that was not handed in counts as new wherever it is used, and queries and keys must be read by
PyTorch, so nothing that is kept outside or computed by NumPy passes by mistake. On purpose it can: by
replacing the counter, or by copying to NumPy and back. Either is more work than the two lines that it
saves, the numbers must still be right for keys that nobody knew before, and what it wins is the points of
this check alone.
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
