"""The pictures of the lessons, one module a lesson; `style` holds what they share."""
