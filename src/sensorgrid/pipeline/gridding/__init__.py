"""From scattered measurements to complete grids with their errors: pure NumPy, no Spark."""
