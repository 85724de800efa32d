"""Get points and answers out: into tables, sheets of learning platforms, and other tools."""
