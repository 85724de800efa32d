"""The widget of lesson 17."""
