"""What lessons 08, 09, 10 and 13 to 15 are given: windows, parts, pages, latents, some rows, prefixes."""
