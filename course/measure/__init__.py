"""Measure: clocks, limits of machines, devices, costs, counted work."""
