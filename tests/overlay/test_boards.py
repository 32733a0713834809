"""One writer for every board: who may write is read from its docstring, who does from the code."""

import ast
import re
import subprocess
import sys
from dataclasses import fields
from inspect import getsource
from pathlib import Path
from textwrap import dedent
from typing import Any, get_type_hints

import pytest

import sensorgrid.overlay
from sensorgrid.overlay import faces
from sensorgrid.overlay.boards import (
    Boards,
    Distances,
    Hearsay,
    HeldRoster,
    RegionsBoard,
    Requests,
    WaitingRequest,
)
from sensorgrid.overlay.intake import Intake, Piece, PieceFeed
from sensorgrid.overlay.kernel import Links
from sensorgrid.overlay.nodes import StreamNodes
from sensorgrid.overlay.outlets import Entry, Outlets, Reservation, Supply

OVERLAY = Path(sensorgrid.overlay.__file__).parent
MECHANISMS = sorted(p for p in (OVERLAY / "mechanisms").glob("*.py") if p.stem != "__init__")
READERS = [p for p in MECHANISMS if p.stem != "streams"]
READERS += [OVERLAY / "admission.py", OVERLAY / "departures.py"]
READERS += sorted(p for p in (OVERLAY / "policies").glob("*.py") if p.stem != "__init__")
BOARDS: dict[str, type] = {
    "roster": HeldRoster, "regions": RegionsBoard, "distances": Distances, "hearsay": Hearsay, "outlets": Outlets,
    "requests": Requests, "intake": Intake, "nodes": StreamNodes,
}  # fmt: skip
ON_BOARDS = {
    name for kind in (Entry, Supply, Piece, PieceFeed, WaitingRequest, Reservation) for name in kind.__slots__
}
"""names in what lies on boards and changes: streams' to write, all of it"""
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "popleft",
    "remove", "reverse", "setdefault", "sort", "update", "__delitem__", "__setattr__", "__setitem__",
}  # fmt: skip
"""methods of containers"""
CHANGE_FIRST = {
    "delattr",
    "heapify",
    "heappop",
    "heappush",
    "heappushpop",
    "heapreplace",
    "insort",
    "setattr",
}
"""functions that change what they are given first"""


def writer_of(board: type) -> str:
    """As its docstring says."""
    named = re.findall(r"[Ww]ritten by (?:the )?(\w+)", board.__doc__ or "")
    assert len(named) == 1, f"{board.__name__}: found writers {named}, expected one"
    return str(named[0])


def test_boards_are_handed_out_as_faces_only() -> None:
    handed = get_type_hints(Boards, vars(faces) | vars(sensorgrid.overlay.boards))

    assert {field.name for field in fields(Boards)} == BOARDS.keys()
    for name, face in handed.items():
        assert name == "requests" or getattr(face, "_is_protocol", False), f"{name} is handed out as {face}"


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_is_named_by_its_one_writer_and_by_no_other_mechanism(name: str) -> None:
    board = BOARDS[name]

    named = [path.stem for path in MECHANISMS if board.__name__ in imported(path)]

    assert named == [writer_of(board)]


def imported(path: Path) -> set[str]:
    """Names that a module imports."""
    found = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom | ast.Import))
    return {alias.name for node in found for alias in node.names}


@pytest.mark.parametrize("name", [name for name in BOARDS if name != "requests"])
def test_a_face_offers_nothing_that_writes(name: str) -> None:
    face = get_type_hints(Boards, vars(faces) | vars(sensorgrid.overlay.boards))[name]
    offered = {name for name in vars(face) if not name.startswith("_")}

    assert offered
    assert not offered & writing_methods(BOARDS[name])
    assert all(prop.fset is None for prop in vars(face).values() if isinstance(prop, property))


def writing_methods(board: type) -> set[str]:
    """Methods that write what others can see of a board, by themselves or through another one."""
    tree = ast.parse(dedent(getsource(board)))
    methods = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found = {name for name, node in methods.items() if any(map(_seen_outside, written(node)))}
    while True:
        more = {name for name, node in methods.items() if found & _called(node)} | found
        if more == found:
            return found
        found = more


def _seen_outside(target: ast.expr) -> bool:
    chain = names_in(target)
    return chain[:1] == ["self"] and len(chain) > 1 and not chain[1].startswith("_")


def _called(node: ast.AST) -> set[str]:
    calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    return {f.attr for f in calls if isinstance(f, ast.Attribute) and names_in(f)[:-1] == ["self"]}


def written(tree: ast.AST) -> list[ast.expr]:
    """What a piece of code assigns to, deletes from, or changes by a method of a container."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                found += [leaf for target in targets for leaf in _leaves(target)]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                found.append(target)
            case ast.For(target=target) | ast.comprehension(target=target):
                found += _leaves(target)
            case ast.withitem(optional_vars=ast.expr() as target):
                found += _leaves(target)
            case ast.Call(
                func=ast.Name(id="setattr" | "delattr"), args=[value, ast.Constant(value=str(name)), *_]
            ):
                found.append(ast.copy_location(ast.Attribute(value, name), node))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[value, *_]) if (
                name in CHANGE_FIRST
            ):
                found.append(value)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in CHANGES:
                found.append(value)
    return found


def _leaves(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [leaf for part in target.elts for leaf in _leaves(part)]
    return _leaves(target.value) if isinstance(target, ast.Starred) else [target]


def names_in(node: ast.expr) -> list[str]:
    """`a.b[c].d` as a, b, d."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=value, attr=attr):
            return [*names_in(value), attr]
        case ast.Subscript(value=value):
            return names_in(value)
        case ast.Call(func=func):
            return names_in(func)
    return [""]


def trespasses(source: str) -> list[str]:
    """Where a module writes what lies on a board, or reaches behind what it was handed."""
    tree = ast.parse(source)
    found = []
    for target in written(tree):
        chain = names_in(target)
        if set(chain[1:] if chain[0] != "self" else chain[2:]) & ON_BOARDS or _of_kernel(chain):
            found.append(f"line {target.lineno}: writes {ast.unparse(target)}")
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if re.match("_[^_]", name) and names_in(node)[:-1] != ["self"]:
                found.append(f"line {node.lineno}: reaches for {ast.unparse(node)}")
            case ast.Call(func=ast.Attribute() as func) if _mutates(names_in(func)):
                found.append(f"line {node.lineno}: calls {ast.unparse(func)}")
            case ast.Call(func=ast.Name(id="vars" | "cast" as name)):
                found.append(f"line {node.lineno}: {name} hides what is written")
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                whence = [getattr(node, "module", None) or "", *(alias.name for alias in names)]
                if any(name.split(".")[-1] == "feeding" for name in whence):
                    found.append(f"line {node.lineno}: {ast.unparse(node)}, which is for streams")
    return found


def _of_kernel(chain: list[str]) -> bool:
    """All of the kernel is its own to write but the counters."""
    after = chain[chain.index("kernel") + 1 :] if "kernel" in chain else []
    return bool(after) and after[0] != "counters"


def _mutates(chain: list[str]) -> bool:
    """Whether a call is one of a method that writes: of what lies on boards, of connections, or of `feeding`."""
    *of, method = chain
    if of[:1] == ["feeding"] or ("links" in of and method in writing_methods(Links)):
        return True
    return of != ["self"] and method in MUTATORS


MUTATORS = {
    name
    for kind in (Entry, Supply, Piece, PieceFeed)
    for name in writing_methods(kind)
    if not name.startswith("_")
}  # fmt: skip


OWN = {
    "interface": ["writes total.points"],
    "calculation": [
        f"writes {name}"
        for name in (
            "node.first", "taken.due", "receiver.first", "node.head", "taken.first", "taken.due", "node.head",
            "node.head", "receiver.next", "receiver.next", "receiver.next", "taken.due",
        )
    ],
}  # fmt: skip
"""what looks like a trespass and is none, by module: a policy adds up loads in a `Load` that it made, and calculation
writes its own nodes, which have names of fields in common with what is the streams'"""


def test_what_lies_on_boards_has_methods_that_write() -> None:
    assert sorted(MUTATORS) == ["keep"]
    assert writing_methods(Links) >= {"send", "opened", "closed", "close"}


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.stem)
def test_who_reads_a_board_does_not_write_what_lies_on_it(path: Path) -> None:
    found = [text.partition(": ")[2] for text in trespasses(path.read_text())]

    assert found == OWN.get(path.stem, [])


@pytest.mark.parametrize(
    "line",
    [
        "supply.piece.passing = True",
        "request.due = now",
        "self.boards.requests[key].due = now",
        "reservation.left -= 1",
        "del supply.entries[key]",
        "supply.entries.clear()",
        "entry.next, other = 1, 2",
        "self.outlets.supplies[0][1].ring.pop(3)",
        "self.service._outlets.void(key)",
        "supply.ring[3] = None",
        "supply.keep(3, 0, None, 8)",
        "feeding.skip(kernel, supply, 9)",
        "from sensorgrid.overlay import feeding",
        "from sensorgrid.overlay.feeding import skip",
        "import sensorgrid.overlay.feeding",
        "setattr(supply, 'head', 3)",
        "delattr(supply, 'head')",
        "vars(entry)['next'] = 1",
        "cast(Any, entry).next = 1",
        "for supply.head in (1, 2): pass",
        "[0 for supply.head in (1, 2)]",
        "with x as entry.next: pass",
        "supply.head, *entry.spread = 1, 2",
        "heappush(supply.early, 1)",
        "heapq.heappush(supply.early, 1)",
        "supply.early.sort()",
        "supply.entries.move_to_end(1)",
        "supply.table.rows.clear()",
        "supply.ring.__setitem__(3, None)",
        "kernel.now = 0",
        "self.kernel.settings = None",
        "kernel.links.up.clear()",
        "self.kernel.links.close(peer)",
        "kernel.effects.append(1)",
    ],
)
def test_a_trespass_is_found(line: str) -> None:
    assert trespasses(line)


WRITES = """
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.boards import Boards


def trespass(boards: Boards, peer: PeerId) -> None:
    boards.outlets.used = 0
    boards.outlets.supplies[0] = {}
    boards.outlets.entries[peer].clear()
    boards.outlets.reserve(boards.outlets.reservations[peer, 1])
    del boards.requests[peer, 0, 0]
    boards.hearsay.free_of[peer] = (0, 0)
    boards.hearsay.carries(peer, ())
    boards.regions.peers = ()
    boards.regions.boxes[0][peer].append(None)
    boards.distances.sights += 1
    boards.distances.delays.pop(peer)
    boards.intake.feeds.clear()
    boards.intake.ask([], peer)
    boards.outlets = boards.outlets
"""


def test_a_reader_that_writes_a_board_is_an_error_of_types(tmp_path: Path) -> None:
    module = tmp_path / "trespass.py"
    module.write_text(WRITES)
    first = WRITES[: WRITES.index("    boards.")].count("\n") + 1

    run: Any = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(module)],
        capture_output=True, text=True, check=False, cwd=OVERLAY.parents[2],
    )  # fmt: skip

    wrong = {int(line.split(":")[1]) for line in run.stdout.splitlines() if ": error:" in line}
    assert wrong == set(range(first, WRITES.count("\n") + 1)), run.stdout + run.stderr
