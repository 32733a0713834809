"""The plain program: what `bench pipeline` compares Spark with. Frozen: it does not change with the pipeline.

It is what a good engineer writes first: one process, pandas reads the files, NumPy and SciPy check and grid, pyarrow
writes. Its method is the pipeline's as of commit 2533b99, for one attribute and inverse distance: no transform, no
elevation, neighbours searched anew for each region and tick. The pipeline's own method has moved on since, so
their counts are compared and their grids are not.

It imports nothing of this package. A faster pipeline must not make its own yardstick faster, so leave it as it is:
corrections of plain mistakes only, and say in docs/pipeline-speed.md what changed.
"""
