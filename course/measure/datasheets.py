"""The datasheets of some GPUs: how fast they compute, how fast they move bytes, how much they hold.

The rates are for dense (not sparse) float16 or bfloat16 with tensor cores:

* T4: NVIDIA T4 datasheet (2019), 65 TFLOP/s, 320 GB/s, 16 GB
* L4: NVIDIA L4 datasheet (2023), 242 TFLOP/s with sparsity, so 121; 300 GB/s, 24 GB
* A100: NVIDIA A100 datasheet (2022), 80 GB SXM, 312 TFLOP/s, 2,039 GB/s
* H100: NVIDIA H100 datasheet (2023), SXM, 1,979 TFLOP/s with sparsity, so 989; 3.35 TB/s, 80 GB
* H200: NVIDIA H200 datasheet (2024), SXM, 1,979 TFLOP/s with sparsity, so 989; 4.8 TB/s, 141 GB
"""

from __future__ import annotations

from course.measure.limits import Machine

DATASHEETS: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        Machine("T4", 65e12, 320e9),
        Machine("L4", 121e12, 300e9),
        Machine("A100", 312e12, 2039e9),
        Machine("H100", 989e12, 3350e9),
        Machine("H200", 989e12, 4800e9),
    )
}
MEMORY_BYTES = {"T4": 16e9, "L4": 24e9, "A100": 80e9, "H100": 80e9, "H200": 141e9}
"""The sizes of their memories."""
