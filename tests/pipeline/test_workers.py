"""What a Python worker of Spark does once: modules stay out of its garbage collections, new garbage does not."""

import subprocess
import sys

PROGRAM = """
import gc
from sensorgrid.pipeline.spark.workers import freeze_once

assert gc.get_freeze_count() == 0
freeze_once()
frozen = gc.get_freeze_count()
assert frozen > 1000, frozen

class Knot:
    alive = 0
    def __init__(self):
        Knot.alive += 1
        self.self = self
    def __del__(self):
        Knot.alive -= 1

Knot()
freeze_once()
assert gc.get_freeze_count() <= frozen, "a second task must not freeze what it made"
gc.collect()
assert Knot.alive == 0, "garbage of later tasks is collected"
"""


def test_only_what_a_first_task_has_loaded_is_left_out_of_collections() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
