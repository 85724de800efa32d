"""From a lesson's text to everything that is built from it, and tools for those who write lessons."""
