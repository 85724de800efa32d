"""The mini-GPT: a Llama-family decoder.

    model = MiniGPT.from_weights("mini")
    logits = model(tokens)                     # (B, T) int64 -> (B, T, V)

What an attention layer computes is lesson 01's `attention_layer`, given as a parameter. This file has
the embedding, the residual stream and the checks of arguments; `layers` and `rotary` have the rest.
With the same weights it gives the logits of `transformers.LlamaForCausalLM`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from course.model.config import GPTConfig
from course.model.layers import Attention, Block, RMSNorm
from course.model.rotary import rotary_table

AttentionLayer = Callable[[Attention, Tensor, Tensor], Tensor]


class MiniGPT(nn.Module):
    """Compute logits of tokens; a decoder whose parts lessons use by name.

    The parts: `embed`, `blocks[i].attn.{wq,wk,wv,wo}`, `blocks[i].attn_norm`, `blocks[i].mlp_norm`,
    `blocks[i].mlp`, `norm`, `lm_head`.

    Args:
        config: the sizes.
        attention_layer: `attention_layer(attn, x, positions)` -> (B, T, C). Left out, it is the one
            built in lesson 01.
    """

    def __init__(self, config: GPTConfig, attention_layer: AttentionLayer | None = None) -> None:
        super().__init__()
        self.config = config
        self.attention_layer = attention_layer or _attention_layer_of_lesson_01()
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        table = rotary_table(config.max_seq_len, config.head_dim, config.rope_theta)
        self.blocks = nn.ModuleList(Block(config, table) for _ in range(config.n_layers))
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        if config.tie_embeddings:
            self.lm_head.weight = self.embed.weight
        self.requires_grad_(False)  # the lessons decode; `course.world.train` switches gradients on

    @classmethod
    def from_weights(
        cls, name: str, attention_layer: AttentionLayer | None = None, device: str = "cpu"
    ) -> MiniGPT:
        """Load a model with weights that the course ships.

        Raises:
            ValueError: no such weights; the message lists those there are.
        """
        from course import weights

        config, state = weights.read(name)
        return cls.from_state(config, state, attention_layer).to(device)

    @classmethod
    def from_state(
        cls,
        config: GPTConfig,
        state: Mapping[str, Tensor],
        attention_layer: AttentionLayer | None = None,
    ) -> MiniGPT:
        """Make a float32 model of the given tensors, named as in `state_dict()`.

        Where the embeddings are tied, `lm_head.weight` may be left out.
        """
        model = cls(config, attention_layer)
        if config.tie_embeddings:
            state = {**state, "lm_head.weight": state["embed.weight"]}
        model.load_state_dict(state)
        return model.eval()

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Compute the logits of every position, without a cache.

        Args:
            tokens: (B, T) int64.
            positions: (T,) or (B, T) int64; left out, 0 … T-1.

        Returns:
            (B, T, V).

        Raises:
            ValueError: tokens of another dtype or shape, none at all, an id outside the vocabulary,
                or more than max_seq_len of them; positions that do not belong to them.
        """
        self.check_tokens(tokens)
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        else:
            self.check_positions(positions, tokens)
        x = self.embed(tokens)  # (B, T, C)
        for block in self.blocks:
            x = x + self.attention_layer(block.attn, block.attn_norm(x), positions)
            x = x + block.mlp(block.mlp_norm(x))
        return self.lm_head(self.norm(x))  # (B, T, V)

    def check_tokens(self, tokens: Tensor) -> None:
        """Check tokens before a forward pass; a ValueError names what is wrong with them."""
        if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64:
            kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ValueError(f"tokens must be an int64 tensor, got {kind}")
        if tokens.dim() != 2 or 0 in tokens.shape:
            raise ValueError(
                f"tokens must be (B, T) with at least one row and one token, "
                f"got shape {tuple(tokens.shape)}"
            )
        if tokens.shape[1] > self.config.max_seq_len:
            raise ValueError(
                f"{tokens.shape[1]} tokens do not fit max_seq_len={self.config.max_seq_len}"
            )
        _check_range("token ids", tokens, self.config.vocab_size - 1)

    def check_positions(self, positions: Tensor, tokens: Tensor) -> None:
        """Check that positions can be those of tokens (B, T); a ValueError names what is wrong."""
        B, T = tokens.shape
        if positions.dtype != torch.int64 or tuple(positions.shape) not in {(T,), (B, T)}:
            raise ValueError(
                f"positions must be int64 of shape {(T,)} or {(B, T)}, "
                f"got {positions.dtype} of shape {tuple(positions.shape)}"
            )
        _check_range("positions", positions, self.config.max_seq_len - 1)


def _check_range(name: str, numbers: Tensor, highest: int) -> None:
    """Check that numbers on a CPU lie in 0 … highest. A look at those on a GPU would make the CPU wait
    at every step."""
    if numbers.device.type == "cpu":
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high > highest:
            raise ValueError(f"{name} must lie in 0 … {highest}, got {low if low < 0 else high}")


def _attention_layer_of_lesson_01() -> AttentionLayer:
    from course.minigpt.mini_gpt import attention_layer

    return attention_layer
