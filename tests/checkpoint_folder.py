"""A checkpoint as `transformers` writes one, small and of random weights."""

from pathlib import Path

import tokenizers
import torch
import transformers


def write_checkpoint(folder: Path, **settings: str) -> Path:
    """Write a small Llama with a tokenizer of words into a folder, and return that.

    Args:
        settings: of the tokenizer, such as its `chat_template`.
    """
    text = "once upon a time there was a small engine that wrote one token after the other"
    words = text.split()
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(
            {word: i for i, word in enumerate(["<unk>", "</s>", *sorted(set(words))])}, "<unk>"
        )
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", eos_token="</s>", **settings
    ).save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=core.get_vocab_size(), num_hidden_layers=3, hidden_size=64, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=96, max_position_embeddings=128, eos_token_id=1,
        bos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder
