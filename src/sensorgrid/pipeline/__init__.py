"""Raw measurements in, gap-free grids out: the data pipeline on Spark."""
