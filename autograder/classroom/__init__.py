"""A whole class: collect what was handed in, grade it, and tell who has what, and why."""
