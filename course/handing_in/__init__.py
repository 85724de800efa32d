"""Check a notebook before it is handed in: run it afresh, and list what is right and what is not."""
