"""Fifty megabytes of output, with words for a terminal and for a browser in it.

points: 10
start: solved
says: more
"""

import os

line = b"\x1b]0;full points\x07<script>alert(1)</script>\xff" * 1000
for _ in range(600):
    os.write(1, line)
    os.write(2, line)
