"""Settings of torch that last: another default dtype, no gradients, threads, a seed.

points: 10
start: solved
lesson: 03-kv-cache
"""

import torch

torch.manual_seed(0)
torch.set_grad_enabled(False)
torch.set_num_threads(4)
torch.set_printoptions(precision=2, sci_mode=False)
torch.use_deterministic_algorithms(True)
