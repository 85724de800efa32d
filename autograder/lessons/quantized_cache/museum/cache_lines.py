"""Lines of the reference's cache, which its wrong answers edit."""

RECENT = "recent = min(max_len, window + group - 1)"
NOTE = "self.pending[layer] = (k, v)"
DONE = "done = max(0, (self.length - self.window) // self.group - self.n_groups)"
KEYS = "self.keys.write(self.n_groups, quantize(complete[0], self.bits, dim=-2))"
VALUES = "self.values.write(self.n_groups, quantize(complete[1], self.bits, dim=-1))"
KEPT = "self.recent[..., : rest.shape[4], :] = rest"
KEYS_BY_TOKEN = ("complete[0], self.bits, dim=-2", "complete[0], self.bits, dim=-1")
VALUES_BY_CHANNEL = ("complete[1], self.bits, dim=-1", "complete[1], self.bits, dim=-2")
KEY_STEPS_BY_TOKEN = ("self.keys = GroupStore(*sizes, -2", "self.keys = GroupStore(*sizes, -1")
VALUE_STEPS_BY_CHANNEL = (
    "self.values = GroupStore(*sizes, -1",
    "self.values = GroupStore(*sizes, -2",
)

ROWS = "torch.cat([old, recent[layer, :, :, :held], new], dim=2)"
FULL = "        if self.length + k.shape[2] > self.max_len"
ALL_BYTES = "self.keys.nbytes() + self.values.nbytes() + self.recent.nbytes"
