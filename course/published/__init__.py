"""Published models: their sizes, models of a size for this machine, real checkpoints."""
