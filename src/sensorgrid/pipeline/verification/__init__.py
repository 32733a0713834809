"""Whether the grids are true: whole stations are left out, estimated from the others, and compared."""
