"""Words that checksums and `hash()` take for others."""

SAME_CHECKSUM = (
    ((133_437, 460_205), (503_965, 130_095)),  # crc32 of decimal numbers, "," or " " between them
    ((764_311, 821_270), (403_595, 677_156)),  # of decimal numbers with ", " between them
    ((18_125, 251_390), (90_653, 570_138)),  # of 4 bytes each, the lowest first
    ((24_200, 588_917), (54_535, 185_611)),  # of 8 bytes each, the lowest first
    ((1_025_083, 466_692), (754_573, 774_651)),  # of 4 bytes each, the highest first
    ((859_081, 24_951), (602_680, 645_590)),  # of 8 bytes each, the highest first
    ((300, 131), (300, 212)),  # adler32 of decimal numbers
    ((300, 66_305), (300, 131_330)),  # adler32 of 3 bytes or more each
)
"""Last two tokens of texts that begin alike. A checksum of 32 bits that is the same for both is the same
whatever the beginning is."""
SAME_HASH = ((860_986_975, 1_755_844_989), (1_943_439_373, 5))
"""First two tokens of texts whose tuples have one `hash()` in CPython, whatever follows."""
