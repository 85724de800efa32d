"""What lessons 08, 09, 10 and 13 are given beside the model: windows, parts, pages, latents."""
