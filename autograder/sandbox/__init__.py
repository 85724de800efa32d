"""A process for student code that can reach nothing: how it is confined, started and tested."""
