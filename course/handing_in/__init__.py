"""Hand in with confidence: run a notebook as it will be run, and say what is right and what is not."""
