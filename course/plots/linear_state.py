"""The pictures of lesson 17."""
