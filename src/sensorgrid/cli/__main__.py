"""``python -m sensorgrid.cli``: the same as the command `sensorgrid`."""

from sensorgrid.cli.main import run

if __name__ == "__main__":
    run()
