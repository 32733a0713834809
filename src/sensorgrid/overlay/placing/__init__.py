"""Where operators run: placement and reallocation as pure decisions, the paper's, ours, and the paper's baselines."""
