"""Options that several commands have: each stands here once, and says the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

Connect = Annotated[
    str | None,
    typer.Option(
        "--connect",
        metavar="URL",
        envvar="SENSORGRID_URL",
        help="A broker, or several with commas.  \\[default: ws://localhost:7400]",
    ),
]
BoxText = Annotated[
    str | None, typer.Option("--bbox", metavar="W,S,E,N", help="The box; without it, the whole grid.")
]
"""for `arguments.read_bbox`"""
Authority = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="For wss://: the file of the network's certificate authority."),
]
JsonAlone = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write it here; - writes only that.")
]
