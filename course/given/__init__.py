"""What lessons 08 to 10 and 13 to 17 are given: windows, parts, pages, latents, sparse reads, prefixes,
experts, and states."""
