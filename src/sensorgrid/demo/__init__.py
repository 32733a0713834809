"""The main job end to end on one machine, and its report."""
