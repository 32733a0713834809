"""What a Python worker of Spark does once, however many tasks it serves.

Spark keeps its Python workers and collects garbage after each task. A collection walks everything that the worker
has ever imported: with pandas, pyarrow and SciPy that takes longer than a small micro-batch works. Modules are no
garbage, so after its first task a worker takes what is there out of all later collections.
"""

import gc

_frozen = False


def freeze_once() -> None:
    """Leave what this worker has loaded by now out of its garbage collections; call it when a first task ends."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()
