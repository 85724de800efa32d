"""The story world: grammar, tokenizer, evaluation, training, and an experiment on outliers."""
