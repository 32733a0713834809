"""What it costs to send one block to many clients: a broker of ours against others, and against a loop in C.

One server, one publisher, N clients. All servers of a case run at the same time and take turns, so that what else
the machine does hits all alike; of several rounds the median counts. The cost is the processor time of the server's
process alone. The next block is published when all clients have the last one: this measures cost, not queues.
"""

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sensorgrid.benchmarks import fanout_servers as servers
from sensorgrid.benchmarks.fanout_peer import Greeting, PeerError, ReceivingSide, compile_peer, write_plan
from sensorgrid.benchmarks.fanout_servers import OWN, SAME, Certificate, Server

Row = dict[str, Any]
Say = Callable[[str], None]

LIMITS = {("c-epoll", SAME): 1.5, ("c-epoll", OWN): 2.5, ("mosquitto", SAME): 1.0, ("nats-server", SAME): 1.0}
"""processor time per byte that a broker of ours may take, as a multiple of another's"""

WARM_BLOCKS, WARM_BYTES = 80, 64 << 20
"""before it counts: until the ring of recent ticks is full and socket buffers have grown, or so many bytes"""


@dataclass(frozen=True, slots=True)
class FanoutSize:
    """How much is measured."""

    clients: tuple[int, ...]
    blocks: tuple[int, ...]
    """bytes"""
    round_bytes: int
    """that each server sends per round, at least one block to all"""
    rounds: int


FULL = FanoutSize((16, 128, 1000), (16 << 10, 256 << 10), 200 << 20, 7)
QUICK = FanoutSize((16, 128), (16 << 10,), 80 << 20, 5)


@dataclass(frozen=True, slots=True)
class Flood:
    """Many clients at a fixed rate, one of which reads nothing."""

    clients: int = 2000
    block_bytes: int = 16 << 10
    ticks: int = 30
    interval_s: float = 1.0


FLOOD = Flood()
FLOOD_QUICK = Flood(clients=500, ticks=10)


class MissingError(PeerError):
    """A program without which nothing can be measured."""


def run(size: FanoutSize, seed: int, say: Say) -> tuple[list[Row], list[str]]:
    """Rows, and what was left out and why."""
    with tempfile.TemporaryDirectory(prefix="fanout-") as name:
        folder = Path(name)
        program = _program(folder, say)
        certificate = _certificate(folder)
        notes = [] if certificate else ["rows with TLS left out: no program openssl to make a certificate"]
        rows: list[Row] = []
        for tls in (None, certificate) if certificate else (None,):
            for block_bytes in size.blocks:
                for clients in size.clients:
                    made, missing = _case(program, folder, clients, block_bytes, tls, size, seed, say)
                    rows += made
                    notes += [note for note in missing if note not in notes]
        return rows, notes


def flood(plan: Flood, seed: int, say: Say) -> list[Row]:
    """Many clients at a fixed rate; the delays of all but the one that stalls, and the memory of the broker."""
    with tempfile.TemporaryDirectory(prefix="fanout-") as name, ExitStack() as stack:
        folder = Path(name)
        program = _program(folder, say)
        server = servers.sensorgrid(folder / "broker", plan.block_bytes, SAME, None, seed)
        stack.callback(server.stop)
        server.wait_up()
        stalled = server.client(0)
        clients = [Greeting(stalled.stages, 0), *(server.client(n) for n in range(1, plan.clients))]
        write_plan(folder / "plan", server.publisher, clients, server.heads(plan.ticks + 1), server.tail)
        say(f"{plan.clients:,} clients connect")
        peer = ReceivingSide(
            program, server.port, server.protocol, False, plan.block_bytes // 2, folder / "plan"
        )
        stack.callback(peer.stop)
        peer.wait_ready()
        peer.publish(1)
        before, spent = server.memory_bytes(), server.cpu_s()
        say(f"{plan.ticks} blocks, one every {plan.interval_s:g} s, to {plan.clients:,} clients")
        found = peer.publish(plan.ticks, plan.interval_s)
        return [
            {
                "server": server.name,
                "clients": plan.clients,
                "stalled": 1,
                "block_bytes": plan.block_bytes,
                "tls": False,
                "boxes": SAME,
                "ticks": plan.ticks,
                "interval_s": plan.interval_s,
                "cpu_seconds_per_gb": (server.cpu_s() - spent) / found["bytes"] * 1e9,
                "mb_per_second": found["bytes"] / found["seconds"] / 1e6,
                "p50_s": found["p50_s"],
                "p99_s": found["p99_s"],
                "memory_bytes_before": before,
                "memory_bytes": server.memory_bytes(),
            }
        ]


def _case(
    program: Path,
    folder: Path,
    clients: int,
    block_bytes: int,
    certificate: Certificate | None,
    size: FanoutSize,
    seed: int,
    say: Say,
) -> tuple[list[Row], list[str]]:
    """All servers at one size, in turns."""
    what = f"{clients:,} clients, {block_bytes >> 10} KB{', TLS' if certificate else ''}"
    blocks = max(2, min(1000, size.round_bytes // (clients * block_bytes)))
    warm = max(2, min(WARM_BLOCKS, WARM_BYTES // (clients * block_bytes)))
    missing: list[str] = []
    with tempfile.TemporaryDirectory(dir=folder) as name, ExitStack() as stack:
        here = Path(name)
        running: list[tuple[Server, ReceivingSide]] = []
        starts: dict[str, Callable[[], Server | None]] = {
            "sensorgrid": lambda: servers.sensorgrid(here / "a", block_bytes, SAME, certificate, seed),
            "sensorgrid, own boxes": lambda: servers.sensorgrid(
                here / "b", block_bytes, OWN, certificate, seed
            ),
            "c-epoll": lambda: servers.c_epoll(program, block_bytes, certificate),
            "mosquitto": lambda: servers.mosquitto(here / "c", block_bytes, certificate),
            "nats-server": lambda: servers.nats(here / "d", block_bytes, certificate),
        }
        say(f"{what}: servers start")
        started: list[Server] = []
        for title, start in starts.items():
            server = start()
            if server is None:
                missing.append(f"rows of {title} left out: not installed")
            else:
                stack.callback(server.stop)
                started.append(server)
        for number, server in enumerate(started):
            say(f"{what}: clients of {server.name} connect")
            server.wait_up()
            plan = here / f"{number}.plan"
            greetings = [server.client(client) for client in range(clients)]
            heads = server.heads(warm + blocks * size.rounds)
            write_plan(plan, server.publisher, greetings, heads, server.tail)
            peer = ReceivingSide(
                program, server.port, server.protocol, certificate is not None, block_bytes // 2, plan
            )
            stack.callback(peer.stop)
            peer.wait_ready()
            peer.publish(warm)
            running.append((server, peer))
        found: list[list[dict[str, Any]]] = [[] for _ in running]
        for turn in range(size.rounds):
            for (server, peer), results in zip(running, found, strict=True):
                say(f"{what}: round {turn + 1} of {size.rounds}, {server.name}")
                spent = server.cpu_s()
                result = peer.publish(blocks)
                results.append(result | {"cpu_s": server.cpu_s() - spent})
    rows = [
        {
            "server": server.name,
            "clients": clients,
            "block_bytes": block_bytes,
            "tls": certificate is not None,
            "boxes": server.boxes,
            "cpu_seconds_per_gb": statistics.median(r["cpu_s"] / r["bytes"] * 1e9 for r in results),
            "mb_per_second": statistics.median(r["bytes"] / r["seconds"] / 1e6 for r in results),
            "p50_s": statistics.median(r["p50_s"] for r in results),
            "p99_s": statistics.median(r["p99_s"] for r in results),
        }
        for (server, _), results in zip(running, found, strict=True)
    ]
    return rows, missing


def ratios(rows: list[Row]) -> Iterator[Row]:
    """Our processor time per byte as a multiple of each other server's, case by case, and whether it may be so."""
    by_case: dict[tuple[int, int, bool], dict[tuple[str, str], Row]] = {}
    for row in rows:
        case = (row["clients"], row["block_bytes"], row["tls"])
        by_case.setdefault(case, {})[row["server"], row["boxes"]] = row
    for (clients, block_bytes, tls), found in by_case.items():
        for (other, boxes), limit in LIMITS.items():
            mine, theirs = found.get(("sensorgrid", boxes)), found.get((other, SAME))
            if mine and theirs:
                ratio = mine["cpu_seconds_per_gb"] / theirs["cpu_seconds_per_gb"]
                yield {
                    "clients": clients,
                    "block_bytes": block_bytes,
                    "tls": tls,
                    "boxes": boxes,
                    "other": other,
                    "ratio": ratio,
                    "limit": limit,
                    "holds": ratio <= limit,
                }


def _program(folder: Path, say: Say) -> Path:
    say("compiling the receiving side")
    program = compile_peer(folder)
    if program is None:
        raise MissingError("bench fanout: found no C compiler with OpenSSL, expected cc and libssl's headers")
    return program


def _certificate(folder: Path) -> Certificate | None:
    """A certificate for this run, signed by itself; the receiving side does not ask who signed it."""
    if shutil.which("openssl") is None:
        return None
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", "2", "-subj", "/CN=localhost", "-keyout", str(made.key), "-out", str(made.chain),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, check=False)
    return made if done.returncode == 0 else None
