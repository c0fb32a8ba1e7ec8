"""Engines: the mathematics of one way to follow something, over rows of numbers."""
