"""`python -m sensorgrid`: the `sensorgrid` command."""

from sensorgrid.cli.main import run

if __name__ == "__main__":
    run()
