"""Measure: clocks, limits of machines, datasheets, devices, costs, counted work."""
