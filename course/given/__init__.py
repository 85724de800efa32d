"""What lessons 08 to 13 are given beside the model: windows, parts, pages, latents."""
