"""Collect what students handed in: from archives of learning platforms, and folders."""
