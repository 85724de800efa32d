"""The visible checks, one module a lesson: friendly, in the notebook's own process, fixed seeds."""
