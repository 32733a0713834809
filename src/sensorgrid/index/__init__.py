"""Cells and what is stored under them: prefix algebra, decomposition, the GBD-tree, Z-order ranges."""
