"""From scattered measurements to complete grids with their errors: NumPy and compiled loops, no Spark."""
