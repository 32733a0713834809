"""``python -m sensorgrid.demo.compiling``: compile once what every broker needs, and keep it for all of them."""

from sensorgrid.index.decompose import prepare
from sensorgrid.links import fan
from sensorgrid.model.grid import Grid

if __name__ == "__main__":
    prepare(Grid())
    fan.prepare()
