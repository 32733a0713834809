"""MQTT in, files out: a daemon that never loses a message which the server was told it has.

MQTT remembers a message only until the subscriber acknowledges it, and Spark wants to read a batch again
after a failure. Files stand in between. The daemon keeps a session at the server, collects messages, writes
them to a file, and acknowledges them when the file is safe on disk under its final name, never before.
Killed at any moment, it leaves each message in a file, or unacknowledged, so that the server sends it again:
duplicates happen, losses do not. (For messages published at QoS 1 or 2; those of QoS 0 have no such promise
at all.)

Memory is bounded because the server stops at `inflight_max` unacknowledged messages, and nothing is
acknowledged while the disk does not follow. All work is done in one thread, one connection at a time:
acknowledgements cannot meet a connection that they do not belong to.

Some servers have a lower limit of their own, often a few dozen messages. The daemon notices when it gets no
more than so many at once and then does not wait for a file to fill up; but files are small then, so raise
the server's limit where messages are many.
"""

import argparse
import fcntl
import logging
import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.sources.landing_files import (
    LandingWriter,
    envelope,
    expire_landing,
    landing_files,
    read_landing,
)

__all__ = [
    "LandingError",
    "LandingSettings",
    "envelope",
    "expire_landing",
    "landing_files",
    "main",
    "read_landing",
    "run_landing",
]

log = logging.getLogger("sensorgrid.landing")

BACKOFF_S = (0.25, 30.0)
"""The first and the longest pause before the daemon connects again."""
_CONNECT_S = 10.0
_STOP_S = 0.1  # how long a stop may go unnoticed
_SETTLE_S = 0.005
_WINDOW_LEAST = 10
_WINDOW_FILES = 200


class LandingError(SensorGridError, RuntimeError):
    """Settings that cannot be right, or a server that refuses the daemon for good."""


class _LostError(SensorGridError, ConnectionError):
    """A connection that ended; another may do better."""


@dataclass(frozen=True, slots=True)
class LandingSettings:
    """What the daemon needs to know. Secrets stay in the environment: settings name the variables only."""

    topics: tuple[str, ...]
    """topic filters, such as ``sensors/+/temperature``; ``$share/group/...`` shares with other daemons"""
    directory: Path
    """where files land; of this daemon alone or shared with daemons of other client ids"""
    client_id: str
    """the name of the session at the server: keep it over restarts, and never use it twice"""
    host: str = "localhost"
    """the server's name or address"""
    port: int = 1883
    """its port; TLS usually has 8883"""
    roll_s: float = 1.0
    """a file is closed when its first message is so old"""
    roll_bytes: int = 16 << 20
    """or when it is so large"""
    inflight_max: int = 10_000
    """or when it has half as many messages; the server sends no more without acknowledgement"""
    session_s: int = 7 * 86_400
    """how long the server keeps messages for a daemon that is down"""
    keepalive_s: int = 30
    """a silent connection is dead after half as long again"""
    username_env: str | None = None
    """the environment variable that holds the user name"""
    password_env: str | None = None
    """the environment variable that holds the password"""
    tls_ca: Path | None = None
    """certificates to trust; with it, or with `tls`, the connection is encrypted"""
    tls_cert: Path | None = None
    """the daemon's own certificate, where the server wants one"""
    tls_key: Path | None = None
    """and its key"""
    tls: bool = False
    """encrypt, and trust the system's certificates"""

    def __post_init__(self) -> None:
        topics = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)
        object.__setattr__(self, "topics", topics)
        object.__setattr__(self, "directory", Path(self.directory))
        if not self.topics:
            raise LandingError("topics: found none, expected at least one filter")
        for topic in self.topics:
            _check_filter(topic)
        if not self.client_id:
            raise LandingError("client_id: found '', expected a name: the server keeps the session under it")
        for name, low, high in (
            ("port", 1, 65_535), ("roll_s", 0.01, 3600), ("roll_bytes", 1, 1 << 40),
            ("inflight_max", 2, 65_535), ("session_s", 1, 0xFFFFFFFF), ("keepalive_s", 1, 65_535),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise LandingError(f"{name}: found {getattr(self, name)}, expected {low} to {high}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise LandingError("tls_cert, tls_key: found one of them, expected both or none")


def run_landing(settings: LandingSettings, stop: threading.Event) -> None:
    """Land messages until `stop` is set; what has been received by then is on disk when this returns.

    Called once per process, from any thread. Lost connections and full disks are waited out; what no waiting
    can cure (a refused login, a filter that the server denies) raises `LandingError`.
    """
    writer = LandingWriter(settings.directory, settings.client_id)
    with _only_one(writer.lock_path, settings):
        writer.clear()
        pause_s = BACKOFF_S[0]
        while not stop.is_set():
            connection = _Connection(settings, writer)
            try:
                connection.open()
                connection.serve(stop)
            except OSError as error:
                if connection.landed:
                    pause_s = BACKOFF_S[0]
                log.warning("event=interrupted cause=%r retry_s=%.2f", str(error), pause_s)
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, BACKOFF_S[1])
            finally:
                connection.close()


def listen(settings: LandingSettings, number: int, seconds: float) -> list[bytes]:
    """Messages as lines of a landing file, so many at most and for so long; nothing is kept, here or at the server.

    Under a name of its own and without a session: a daemon that runs is not disturbed and loses nothing.
    """
    # A share of a group would take messages away from its daemons.
    topics = tuple(re.sub(r"^\$share/[^/]+/", "", topic) for topic in settings.topics)
    name = f"{settings.client_id}-{secrets.token_hex(4)}"
    connection = _Connection(replace(settings, topics=topics, client_id=name, session_s=1), None)
    deadline = time.monotonic() + seconds
    try:
        connection.open()
        return connection.overhear(number, deadline)
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class _Message:
    mid: int
    qos: int
    line: bytes


class _Connection:
    """One connection from its beginning to its end, and the messages that it has brought but not landed."""

    def __init__(self, settings: LandingSettings, writer: LandingWriter | None) -> None:
        self.landed = 0
        self._settings, self._writer = settings, writer
        self._pending: list[_Message] = []
        self._pending_bytes = 0
        self._first_at = 0.0
        self._window: int | None = None  # the server's own limit, as far as it shows
        self._window_files = 0
        self._aged_with = 0
        self._ready = False
        self._refusal: Exception | None = None
        self._client = self._make_client()

    def open(self) -> None:
        """Connect, take up the session, subscribe; returns when the server has agreed to all of it."""
        settings = self._settings
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = settings.session_s
        properties.ReceiveMaximum = settings.inflight_max
        self._client.connect(
            settings.host, settings.port, settings.keepalive_s, clean_start=False, properties=properties
        )
        deadline = time.monotonic() + _CONNECT_S
        while not self._ready:
            if time.monotonic() > deadline:
                raise _LostError(f"server {settings.host}:{settings.port}: found no answer in {_CONNECT_S} s")
            self._turn(_STOP_S)

    def serve(self, stop: threading.Event) -> None:
        """Receive, land and acknowledge until told to stop; then say goodbye, so that the session rests."""
        while not stop.is_set():
            self._turn(self._patience_s())
            if self._is_due():
                self._land()
        self._land()
        self._client.disconnect()

    def overhear(self, number: int, deadline: float) -> list[bytes]:
        """Messages that come, so many at most; none is acknowledged, and none is kept."""
        while len(self._pending) < number and time.monotonic() < deadline:
            self._turn(min(_STOP_S, max(0.0, deadline - time.monotonic())))
        heard, self._pending = [message.line for message in self._pending[:number]], []
        self._client.disconnect()
        return heard

    def close(self) -> None:
        """Let go of everything; what has not landed was not acknowledged: the server will repeat it."""
        # Those of QoS 0 would not be repeated: the least that can be done is to keep what is here.
        unrepeated = [message.line for message in self._pending if message.qos == 0]
        self._pending = []
        try:
            if unrepeated and self._writer is not None:
                self._writer.write(unrepeated, time.time())
        except OSError as error:
            log.warning("event=dropped messages=%d cause=%r", len(unrepeated), str(error))
        finally:
            self._client.on_disconnect = None
            self._client._reset_sockets()  # paho leaves its pair of wake-up sockets to the garbage collector

    def _make_client(self) -> mqtt.Client:
        settings = self._settings
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2, settings.client_id, protocol=mqtt.MQTTv5, manual_ack=True
        )
        client.connect_timeout = _CONNECT_S
        if settings.username_env or settings.password_env:
            client.username_pw_set(_secret(settings.username_env), _secret(settings.password_env))
        if settings.tls or settings.tls_ca:
            ca, cert, key = (
                str(p) if p else None for p in (settings.tls_ca, settings.tls_cert, settings.tls_key)
            )
            client.tls_set(ca, cert, key)
        client.on_connect, client.on_subscribe = self._on_connect, self._on_subscribe
        client.on_message, client.on_disconnect = self._on_message, self._on_disconnect
        return client

    def _turn(self, wait_s: float) -> None:
        """One turn of the network loop; the callbacks below run inside."""
        code = self._client.loop(wait_s)
        if self._refusal is not None:
            raise self._refusal
        if code != mqtt.MQTT_ERR_SUCCESS:
            raise _LostError(f"server {self._settings.host}:{self._settings.port}: {mqtt.error_string(code)}")

    def _on_connect(self, client: mqtt.Client, _: Any, flags: Any, reason: Any, __: Any) -> None:
        if reason.is_failure:
            server = f"server {self._settings.host}:{self._settings.port}"
            text = f"{server}: found {str(reason)!r}, expected a session"
            forbidden = reason.getName() in ("Bad user name or password", "Not authorized", "Banned")
            self._refusal = LandingError(text) if forbidden else _LostError(text)
            return
        log.info("event=connected session_present=%s", str(flags.session_present).lower())
        # Retained messages come with a new subscription only, not with each reconnection.
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe([(topic, options) for topic in self._settings.topics])

    def _on_subscribe(self, _: mqtt.Client, __: Any, ___: int, reasons: Sequence[Any], ____: Any) -> None:
        for topic, reason in zip(self._settings.topics, reasons, strict=False):
            if reason.is_failure:
                self._refusal = LandingError(
                    f"topic {topic!r}: found {str(reason)!r}, expected a subscription"
                )
        self._ready = True

    def _on_disconnect(self, _: mqtt.Client, __: Any, flags: Any, reason: Any, ___: Any) -> None:
        if flags.is_disconnect_packet_from_server and self._refusal is None:
            host, port = self._settings.host, self._settings.port
            self._refusal = _LostError(f"server {host}:{port}: ended the connection: {reason}")

    def _on_message(self, _: mqtt.Client, __: Any, message: mqtt.MQTTMessage) -> None:
        if not self._pending:
            self._first_at = time.monotonic()
        try:
            topic: str | None = message.topic
        except UnicodeDecodeError:
            topic = None
        line = envelope(topic, bytes(message.payload), time.time())
        self._pending.append(_Message(message.mid, message.qos, line))
        self._pending_bytes += len(line)

    def _patience_s(self) -> float:
        """How long to wait for the network until there may be something else to do."""
        if not self._pending:
            return _STOP_S
        if self._window is not None and len(self._pending) >= self._window:
            return _SETTLE_S
        return min(_STOP_S, max(0.0, self._first_at + self._settings.roll_s - time.monotonic()))

    def _is_due(self) -> bool:
        """Whether to close the file: large enough, old enough, or the server will send no more anyway."""
        count, settings = len(self._pending), self._settings
        if not count:
            return False
        if self._pending_bytes >= settings.roll_bytes or 2 * count >= settings.inflight_max:
            return True
        if self._window is not None and count > self._window:
            self._window = None  # it was no limit after all
        if time.monotonic() - self._first_at >= settings.roll_s:
            # Twice the same number by the end of the time: probably all that the server sends at once.
            if count == self._aged_with and count >= _WINDOW_LEAST:
                self._window, self._window_files = count, _WINDOW_FILES
            self._aged_with = count
            return True
        return self._is_window_full()

    def _is_window_full(self) -> bool:
        if self._window is None or len(self._pending) < self._window:
            return False
        self._turn(_SETTLE_S)
        if len(self._pending) > self._window:
            self._window = None
            return False
        self._window_files -= 1
        if self._window_files <= 0:
            self._window = None  # look again: the flow may have changed
        return True

    def _land(self) -> None:
        """Write, make durable, then acknowledge: in this order, or a crash in between loses messages."""
        if not self._pending:
            return
        assert self._writer is not None
        path = self._writer.write((message.line for message in self._pending), time.time())
        for message in self._pending:
            if message.qos > 0:
                self._client.ack(message.mid, message.qos)
        log.info(
            "event=landed file=%s messages=%d bytes=%d", path.name, len(self._pending), self._pending_bytes
        )
        self.landed += len(self._pending)
        self._pending, self._pending_bytes = [], 0


@contextmanager
def _only_one(path: Path, settings: LandingSettings) -> Iterator[None]:
    """Hold the directory for this client; the kernel lets go of it even if the process is killed."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LandingError(
                f"client {settings.client_id!r}: found another process landing in {settings.directory},"
                " expected to be the only one"
            ) from None
        yield


def _check_filter(topic: str) -> None:
    levels = topic.split("/")
    wild = all(level in ("+", "#") or not set(level) & {"+", "#"} for level in levels)
    if not topic or "\0" in topic or len(topic.encode()) > 65_535 or not wild or "#" in levels[:-1]:
        raise LandingError(
            f"topic {topic!r}: found no topic filter, expected levels with / between, + for one level,"
            " # for all that follow"
        )


def _secret(variable: str | None) -> str | None:
    if variable is None:
        return None
    if variable not in os.environ:
        raise LandingError(
            f"environment variable {variable}: found nothing, expected a user name or password"
        )
    return os.environ[variable]


def main(arguments: Sequence[str] | None = None) -> int:
    """The daemon as a command; stops cleanly on SIGTERM and SIGINT. Gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="landing", description="Subscribe to MQTT topics and land their messages in files, losing none."
    )
    parser.add_argument("topics", nargs="+", help="topic filters, such as 'sensors/+/temperature'")
    parser.add_argument("--directory", type=Path, required=True, help="where files land")
    parser.add_argument("--client-id", required=True, help="name of the session at the server")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--roll-s", type=float, default=1.0, help="close a file when it is so old")
    parser.add_argument("--roll-bytes", type=int, default=16 << 20, help="or so large")
    parser.add_argument("--inflight-max", type=int, default=10_000, help="messages without acknowledgement")
    parser.add_argument("--session-s", type=int, default=7 * 86_400, help="how long the server remembers us")
    parser.add_argument("--keepalive-s", type=int, default=30)
    parser.add_argument("--username-env", help="environment variable that holds the user name")
    parser.add_argument("--password-env", help="environment variable that holds the password")
    parser.add_argument("--tls", action="store_true", help="encrypt, trusting the system's certificates")
    for name in ("ca", "cert", "key"):
        parser.add_argument(f"--tls-{name}", type=Path, help=f"file of the {name}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        run_landing(LandingSettings(**vars(parser.parse_args(arguments))), stop)
    except SensorGridError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
