"""Benchmarks as functions: specification in, rows out. `sensorgrid bench` prints them."""
