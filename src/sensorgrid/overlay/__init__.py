"""The broker without I/O: events in, effects out, time and randomness injected."""
