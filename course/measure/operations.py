"""See every operation of PyTorch, whatever it was called through."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):
    """A `TorchDispatchMode` for code that is never compiled.

    PyTorch keeps its compiler out of any other mode, and for that imports the compiler at the first
    operation: 800 modules, two seconds.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
