"""The servers that `bench fanout` compares: how each is started, what its clients say, how a block is published.

All of them read a block from one connection and send it to all who asked for it. What differs is the language, so
each has its greetings and its frames; the process that speaks them is the same.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from sensorgrid.benchmarks.fanout_peer import Greeting, PeerError
from sensorgrid.links import wire
from sensorgrid.overlay import codec
from sensorgrid.overlay.messages import Clip, Want

SAME, OWN = "same", "own"
HEARD = b""
"""nothing more to say, but the answer must have come: only then blocks are sure to reach the client"""
START_S = 60.0
FIRST_TICK = 1 << 20
"""its number has as many bytes as those that follow"""
_RESOLUTION_BITS = 4
_UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files of a server's certificate and key."""

    chain: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Server:
    """A process that serves, and how one speaks with it."""

    name: str
    boxes: str
    """same: all clients ask for the same; own: each for its own box"""
    protocol: str
    """of `fanout_peer.c`"""
    process: subprocess.Popen[bytes]
    port: int
    publisher: Greeting
    client: Callable[[int], Greeting]
    """what client n says"""
    heads: Callable[[int], Iterable[bytes]]
    """the beginnings of so many blocks"""
    tail: bytes
    """what all of them end with"""

    def wait_up(self) -> None:
        """Until it listens."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            time.sleep(0.05)
        raise PeerError(f"{self.name}: found nobody on port {self.port}, expected it within {START_S:g} s")

    def cpu_s(self) -> float:
        """Processor time of the process so far, all threads, user and system."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def memory_bytes(self) -> int:
        """What it has in memory now."""
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * 4096

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def sensorgrid(
    folder: Path, block_bytes: int, boxes: str, certificate: Certificate | None, seed: int = 1
) -> Server:
    """A broker of ours: blocks come over its publishing connection, clients ask for a box of the region."""
    side = round((block_bytes // 4) ** 0.5)
    region = side if boxes == SAME else 2 * side
    port = _free_port()
    folder.mkdir()
    (folder / "grid.toml").write_text(_configuration(port, region, certificate))
    start = "from sensorgrid.cli.main import run; run()"
    process = subprocess.Popen([sys.executable, "-c", start, "broker", str(folder / "grid.toml"), "--quiet"])
    cell, rng = 0b100, Random(seed)

    def client(number: int) -> Greeting:
        x, y = (
            (rng.randrange(region - side + 1), rng.randrange(region - side + 1)) if boxes == OWN else (0, 0)
        )
        full = 1 << _RESOLUTION_BITS
        clip = Clip((x, x + side, y, y + side), (full, full, full))
        want = Want(1, 0, ((cell, side * side * full, FIRST_TICK),), clip)
        hello = wire.Hello(wire.VERSIONS, wire.CLIENT)
        return Greeting(
            ((0, _UPGRADE), (1, masked(wire.encode_greeting(hello))), (2, masked(codec.encode(want))))
        )

    def heads(count: int) -> Iterable[bytes]:
        for tick in range(FIRST_TICK, FIRST_TICK + count):
            whole = wire.encode_publish(wire.Publish(0, cell, tick, 0, 1, (region, region)), values)
            yield masked(whole)[: -len(tail)]

    values = np.random.default_rng(seed).random((region, region), np.float32)
    tail = values.tobytes()
    hello = wire.Hello(wire.VERSIONS, wire.PUBLISHER)
    publisher = Greeting(((0, _UPGRADE), (1, masked(wire.encode_greeting(hello)))))
    return Server("sensorgrid", boxes, "ws", process, port, publisher, client, heads, tail)


def c_epoll(program: Path, block_bytes: int, certificate: Certificate | None) -> Server:
    """The yardstick in C: the same bytes to all."""
    port = _free_port()
    secrets = [] if certificate is None else [str(certificate.chain), str(certificate.key)]
    process = subprocess.Popen([str(program), "serve", str(port), *secrets])
    block = frame(bytes(block_bytes))
    return Server(
        "c-epoll", SAME, "frames", process, port,
        Greeting(((0, b"P"),)), lambda number: Greeting(((0, b"C"), (1, HEARD))),
        lambda count: [len(block).to_bytes(4, "little")] * count, block,
    )  # fmt: skip


def mosquitto(folder: Path, block_bytes: int, certificate: Certificate | None) -> Server | None:
    """An MQTT broker, without acknowledgements; None if it is not installed."""
    program = _installed("mosquitto")
    if program is None:
        return None
    port = _free_port()
    folder.mkdir()
    lines = [
        f"listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true", "persistence false",
        "log_type none", "max_inflight_messages 0", "max_queued_messages 0",
    ]  # fmt: skip
    if os.geteuid() == 0:
        lines.append("user root")  # else it becomes a user who cannot read our temporary folder
    if certificate is not None:
        lines += [f"certfile {certificate.chain}", f"keyfile {certificate.key}"]
    (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    process = subprocess.Popen(
        [program, "-c", str(folder / "mosquitto.conf")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def connect(name: str) -> bytes:
        return _mqtt(0x10, _text(b"MQTT") + b"\x04\x02\x00\x00" + _text(name.encode()))

    subscribe = _mqtt(0x82, b"\x00\x01" + _text(b"block") + b"\x00")
    block = _mqtt(0x30, _text(b"block") + bytes(block_bytes))
    return Server(
        "mosquitto", SAME, "mqtt", process, port,
        Greeting(((0, connect("publisher")),)),
        lambda number: Greeting(((0, connect(f"client-{number}")), (1, subscribe), (2, HEARD))),
        lambda count: [b""] * count, block,
    )  # fmt: skip


def nats(folder: Path, block_bytes: int, certificate: Certificate | None) -> Server | None:
    """A NATS server, core subjects; None if it is not installed."""
    program = _installed("nats-server")
    if program is None:
        return None
    port = _free_port()
    folder.mkdir()
    text = f'host: "127.0.0.1"\nport: {port}\nping_interval: "10m"\nwrite_deadline: "30s"\n'
    if certificate is not None:
        text += f'tls {{ cert_file: "{certificate.chain}", key_file: "{certificate.key}", timeout: 30 }}\n'
    (folder / "nats.conf").write_text(text)
    process = subprocess.Popen(
        [program, "-c", str(folder / "nats.conf")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    connect = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
    block = b"PUB block %d\r\n" % block_bytes + bytes(block_bytes) + b"\r\n"
    return Server(
        "nats-server", SAME, "nats", process, port,
        Greeting(((0, connect),)), lambda number: Greeting(((0, connect + b"SUB block 1\r\nPING\r\n"), (2, HEARD))),
        lambda count: [b""] * count, block,
    )  # fmt: skip


def masked(message: bytes) -> bytes:
    """A client's WebSocket frame; the mask is zero, which the server cannot know and undoes as any other."""
    plain = frame(message)
    head = len(plain) - len(message)
    return plain[:1] + bytes((plain[1] | 0x80,)) + plain[2:head] + b"\0\0\0\0" + message


def frame(message: bytes) -> bytes:
    """A server's WebSocket frame."""
    size = len(message)
    if size < 126:
        return b"\x82" + bytes((size,)) + message
    if size < 1 << 16:
        return b"\x82\x7e" + size.to_bytes(2, "big") + message
    return b"\x82\x7f" + size.to_bytes(8, "big") + message


def _configuration(port: int, region: int, certificate: Certificate | None) -> str:
    """Four regions of region × region points; all clients are in the first."""
    tls = (
        ""
        if certificate is None
        else f'[network.tls]\ncert_file = "{certificate.chain}"\nkey_file = "{certificate.key}"\n'
    )
    scheme = "ws" if certificate is None else "wss"
    return f"""
[grid]
extent = [0, 0, {2 * region}, {2 * region}]
shape = [{2 * region}, {2 * region}]
coordinates = "planar"
tick = 1
resolution_bits = {_RESOLUTION_BITS}
region_digits = 2

[network]
budget = 1e12
policy = "never"
alive = 3600
waiting_bytes = {256 << 20}
brokers = [{{ id = 0, url = "{scheme}://127.0.0.1:{port}" }}]
{tls}"""


def _installed(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _mqtt(kind: int, body: bytes) -> bytes:
    length, digits = len(body), bytearray()
    while True:
        length, digit = divmod(length, 128)
        digits.append(digit | (128 if length else 0))
        if not length:
            return bytes((kind,)) + bytes(digits) + body


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text
