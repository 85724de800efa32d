"""The things to play with, one module a lesson; `playground` is what they share."""
