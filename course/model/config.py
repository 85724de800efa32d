"""The sizes of a mini-GPT, checked when a config is made."""

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class GPTConfig:
    """Hold the sizes of a Llama-family decoder.

    In shapes: V = vocab_size, L = n_layers, C = d_model, H = n_heads, G = n_kv_heads, and
    D = head_dim = C // H.

    Raises:
        ValueError: a size is not a positive whole number, or one does not divide another.
    """

    vocab_size: int
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    max_seq_len: int = 1024
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and (type(value) is not int or value < 1):
                raise ValueError(
                    f"{field.name} must be a whole number of at least 1, got {value!r}"
                )
            if field.type is float and not (
                type(value) in (int, float) and 0 < value < float("inf")
            ):
                raise ValueError(f"{field.name} must be a number above 0, got {value!r}")
            if field.type is bool and type(value) is not bool:
                raise ValueError(f"{field.name} must be True or False, got {value!r}")
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model must be a multiple of n_heads, got d_model={self.d_model} "
                f"and n_heads={self.n_heads}"
            )
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads must be a multiple of n_kv_heads, so that each key/value head serves "
                f"equally many query heads; got n_heads={self.n_heads} "
                f"and n_kv_heads={self.n_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(
                f"rotary positions turn pairs of numbers, so the head width must be even; "
                f"got d_model // n_heads = {self.head_dim}"
            )

    @property
    def head_dim(self) -> int:
        """D, the width of one head."""
        return self.d_model // self.n_heads

    def to_dict(self) -> dict[str, int | float | bool]:
        """Return the sizes as plain values, for JSON."""
        return asdict(self)
