"""What operators mean: expressions over areas and times of a grid, as mergeable partials; NumPy, no I/O.

The same code answers in one process, in the network, in Spark and in a client, so that all give the same bits.
"""
