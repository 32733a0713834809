"""A deterministic world for the overlay: clock, underlay, faults, workloads, checkers."""
