"""A student's files: notebooks, released lessons, progress; and writing a file whole or not at all."""
