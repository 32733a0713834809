"""Benchmarks as functions: specification in, rows out. `sensorgrid bench` prints them."""

from sensorgrid.model.errors import SensorGridError


class BenchmarkError(SensorGridError, RuntimeError):
    """A benchmark that cannot be run, or whose two sides disagree."""
