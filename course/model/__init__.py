"""The model that every lesson decodes with, its cache protocol, and the checks of arguments."""

from course.model.gpt import AttentionLayer, MiniGPT

__all__ = ["AttentionLayer", "MiniGPT"]
