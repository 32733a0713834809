"""The landing daemon against a real mosquitto: what was acknowledged is in a file, whatever was killed."""

import base64
import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from pyspark.sql import SparkSession

from sensorgrid.pipeline.schema import RAW_BYTES_MAX, RECORD
from sensorgrid.pipeline.sources import landing
from sensorgrid.pipeline.sources.landing import (
    LandingError,
    LandingSettings,
    envelope,
    expire_landing,
    landing_files,
    main,
    read_landing,
    run_landing,
)
from sensorgrid.pipeline.sources.landing_files import LandingFileError, LandingWriter
from servers import Process, free_port, mosquitto, needs_mosquitto, running, still_runs, wait_for

TALKATIVE = """
import sys
from sensorgrid.pipeline.sources import landing
plain = landing.envelope
landing.envelope = lambda *parts: (print("received", flush=True), plain(*parts))[1]
sys.exit(landing.main())
"""
"""The daemon as it is, with a line in its log for each message that it has received but not yet landed."""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    number = free_port()
    with mosquitto(tmp_path, number):
        yield number


@contextmanager
def publisher(port: int) -> Iterator[Callable[..., None]]:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, "publisher", protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield lambda topic, payload, qos=1: client.publish(topic, payload, qos).wait_for_publish(20)
    finally:
        client.disconnect()
        client.loop_stop()
        client._reset_sockets()


def daemon(tmp_path: Path, port: int, *topics: str, roll_s: float = 0.2) -> AbstractContextManager[Process]:
    command = [sys.executable, "-c", TALKATIVE, *topics]
    command += ["--directory", str(tmp_path / "landing"), "--client-id", "lander", "--port", str(port)]
    command += ["--roll-s", str(roll_s)]
    return running(*command, log=tmp_path / "daemon.log")


def connections(tmp_path: Path) -> int:
    log = tmp_path / "daemon.log"
    return log.read_text().count("event=connected") if log.exists() else 0


@contextmanager
def inside(settings: LandingSettings) -> Iterator[threading.Event]:
    """The daemon in a thread of this process; its errors are this test's errors."""
    stop, failures = threading.Event(), []

    def work() -> None:
        try:
            run_landing(settings, stop)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(20)
    assert not failures, failures


def landed(directory: Path) -> list[dict[str, str]]:
    return [json.loads(line) for path in landing_files(directory) for line in path.read_bytes().splitlines()]


def subscribed(tmp_path: Path, port: int, *topics: str) -> None:
    """Let the server know the session, so that it keeps messages from now on."""
    before = connections(tmp_path)
    with daemon(tmp_path, port, *topics) as process:
        wait_for(lambda: connections(tmp_path) > before, "the first connection")
        process.terminate()
        process.wait(10)


@needs_mosquitto
def test_no_message_is_lost_when_the_daemon_is_killed_again_and_again(tmp_path: Path, port: int) -> None:
    chance = random.Random(5)
    subscribed(tmp_path, port, "sensors/#")
    sent, done = [], threading.Event()

    def publish() -> None:
        with publisher(port) as send:
            while not done.is_set():
                sent.append(f"message {len(sent)}")
                send(f"sensors/{len(sent) % 7}/temperature", sent[-1])

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(4):
            before, files = connections(tmp_path), len(landing_files(tmp_path / "landing"))
            with daemon(tmp_path, port, "sensors/#", roll_s=0.15) as process:
                wait_for(lambda before=before: connections(tmp_path) > before, "a connection")
                wait_for(lambda files=files: len(landing_files(tmp_path / "landing")) > files, "a file")
                assert still_runs(process, after_s=chance.uniform(0, 0.3))  # anywhere between two files
                process.send_signal(signal.SIGKILL)
                process.wait(10)
    finally:
        done.set()
        thread.join(30)
    with daemon(tmp_path, port, "sensors/#"):
        wait_for(lambda: {m["payload"] for m in landed(tmp_path / "landing")} >= set(sent), "every message")

    assert len(sent) > 100
    assert not list((tmp_path / "landing").glob(".*.part"))


@needs_mosquitto
def test_a_message_is_acknowledged_only_when_its_file_is_durable(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def spy(owner: Any, name: str, word: str) -> None:
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (events.append(word), original(*a, **k))[1])

    spy(os, "fsync", "fsync")
    spy(os, "rename", "rename")
    spy(mqtt.Client, "_send_puback", "acknowledge")
    settings = LandingSettings(("t",), tmp_path / "landing", "lander", "127.0.0.1", port, roll_s=0.05)
    with inside(settings), publisher(port) as send:
        wait_for(lambda: has_subscriber(send, tmp_path), "the subscription")
        send("t", "one")
        wait_for(lambda: "one" in {m["payload"] for m in landed(tmp_path / "landing")}, "the message")

        def all_acknowledged() -> bool:
            return events.count("acknowledge") == len(landed(tmp_path / "landing"))

        wait_for(all_acknowledged, "the acknowledgements")

    assert re.fullmatch("(fsync rename fsync (acknowledge )+)+", " ".join([*events, ""]))


def has_subscriber(send: Callable[..., None], tmp_path: Path) -> bool:
    send("t", "anybody there?")
    return bool(landed(tmp_path / "landing"))


@needs_mosquitto
def test_a_full_disk_is_waited_out_and_nothing_is_acknowledged_meanwhile(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = LandingSettings(("t",), tmp_path / "landing", "lander", "127.0.0.1", port, roll_s=0.05)
    rename, full = os.rename, threading.Event()
    failures: list[int] = []

    def failing(*paths: Any) -> None:
        if full.is_set():
            failures.append(1)
            raise OSError(28, "No space left on device")
        rename(*paths)

    monkeypatch.setattr(os, "rename", failing)
    monkeypatch.setattr(landing, "BACKOFF_S", (0.02, 0.1))
    with inside(settings), publisher(port) as send:
        wait_for(lambda: has_subscriber(send, tmp_path), "the subscription")
        full.set()
        for number in range(50):
            send("t", str(number))
        wait_for(lambda: len(failures) >= 3, "some failures")
        assert not {"0", "49"} & {m["payload"] for m in landed(tmp_path / "landing")}
        full.clear()
        wanted = {str(number) for number in range(50)}
        wait_for(lambda: {m["payload"] for m in landed(tmp_path / "landing")} >= wanted, "all messages")


@needs_mosquitto
def test_binary_payloads_survive_and_filters_choose(tmp_path: Path, port: int) -> None:
    binary, lines = bytes(range(256)), 'line one\r\nline "two"\u2028 ü'
    settings = LandingSettings(
        ("sensors/+/temperature", "alarms/#"), tmp_path / "landing", "lander", "127.0.0.1", port, roll_s=0.05
    )
    subscribed(tmp_path, port, "sensors/+/temperature", "alarms/#")
    with publisher(port) as send:
        send("sensors/a/temperature", lines)
        send("sensors/a/humidity", "not wanted")
        send("sensors/a/b/temperature", "not wanted")
        send("alarms", binary)
        send("alarms/fire/now", "")

    with inside(settings):
        got = wait_for(lambda: len(all_ := landed(tmp_path / "landing")) >= 3 and all_, "three messages")

    assert [m["topic"] for m in got] == ["sensors/a/temperature", "alarms", "alarms/fire/now"]
    assert got[0]["payload"] == lines
    assert got[1]["encoding"] == "base64"
    assert base64.b64decode(got[1]["payload"]) == binary
    assert got[2]["payload"] == ""
    assert got[0]["received_at"].endswith("+00:00")


@needs_mosquitto
def test_sigterm_lands_what_has_been_received(tmp_path: Path, port: int) -> None:
    with daemon(tmp_path, port, "t", roll_s=3600) as process, publisher(port) as send:
        wait_for(lambda: connections(tmp_path), "a connection")
        for number in range(10):
            send("t", str(number))
        wait_for(lambda: (tmp_path / "daemon.log").read_text().count("received") >= 10, "ten messages")
        assert not landing_files(tmp_path / "landing")
        process.terminate()
        assert process.wait(10) == 0

    assert [m["payload"] for m in landed(tmp_path / "landing")] == [str(n) for n in range(10)]


@needs_mosquitto
def test_a_server_that_goes_away_and_comes_back_is_found_again(tmp_path: Path) -> None:
    port = free_port()
    with mosquitto(tmp_path, port):
        subscribed(tmp_path, port, "t")
    with daemon(tmp_path, port, "t"):
        for round_ in ("first", "second"):
            with mosquitto(tmp_path, port), publisher(port) as send:
                send("t", round_)
                wait_for(lambda r=round_: r in {m["payload"] for m in landed(tmp_path / "landing")}, round_)

    assert {m["payload"] for m in landed(tmp_path / "landing")} == {"first", "second"}


class NarrowServer:
    """In place of a client: hands over messages as long as fewer than twenty wait for acknowledgement."""

    def __init__(self, connection: Any, backlog: int, stop: threading.Event) -> None:
        self.connection, self.backlog, self.stop, self.waiting = connection, backlog, stop, 0

    def loop(self, wait_s: float) -> int:
        if self.backlog and self.waiting < 20:
            self.backlog, self.waiting = self.backlog - 1, self.waiting + 1
            message = mqtt.MQTTMessage(mid=self.backlog + 1, topic=b"t")
            message.qos = 1
            self.connection._on_message(None, None, message)
        elif not self.backlog and not self.waiting:
            self.stop.set()
        else:
            self.stop.wait(wait_s)
        return 0

    def ack(self, mid: int, qos: int) -> None:
        self.waiting -= 1

    def disconnect(self) -> None:
        pass


def test_a_server_with_a_small_window_is_not_waited_for(tmp_path: Path) -> None:
    settings = LandingSettings(("t",), tmp_path, "lander", roll_s=1.0)
    connection, stop = landing._Connection(settings, LandingWriter(tmp_path, "lander")), threading.Event()
    connection._client = NarrowServer(connection, 2000, stop)

    began = time.monotonic()
    connection.serve(stop)

    assert time.monotonic() - began < 60, "100 windows of 1 s for one that waits each time"
    assert len(landed(tmp_path)) == 2000


@needs_mosquitto
def test_memory_is_bounded_by_what_is_not_acknowledged(tmp_path: Path) -> None:
    port = free_port()
    settings = LandingSettings(
        ("t",), tmp_path / "landing", "lander", "127.0.0.1", port, roll_s=60, inflight_max=40
    )
    with mosquitto(tmp_path, port, "max_inflight_messages 0"):
        subscribed(tmp_path, port, "t")
        with publisher(port) as send:
            for number in range(200):
                send("t", str(number))
        with inside(settings):
            wait_for(lambda: len(landed(tmp_path / "landing")) >= 200, "all messages")

    sizes = [len(path.read_bytes().splitlines()) for path in landing_files(tmp_path / "landing")]
    assert max(sizes) <= 40


@needs_mosquitto
def test_a_second_daemon_of_the_same_name_is_refused(tmp_path: Path, port: int) -> None:
    settings = LandingSettings(("t",), tmp_path / "landing", "lander", "127.0.0.1", port, roll_s=0.05)
    with inside(settings), publisher(port) as send:
        wait_for(lambda: has_subscriber(send, tmp_path), "the subscription")

        with pytest.raises(LandingError, match="client 'lander': found another process landing in"):
            run_landing(settings, threading.Event())


@needs_mosquitto
def test_a_refused_login_ends_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    secrets = tmp_path / "passwords"
    secrets.write_text("")
    monkeypatch.setenv("LANDING_USER", "somebody")
    monkeypatch.setenv("LANDING_PASSWORD", "wrong")
    settings = LandingSettings(
        ("t",), tmp_path / "landing", "lander", "127.0.0.1", port,
        username_env="LANDING_USER", password_env="LANDING_PASSWORD",
    )  # fmt: skip
    with (
        mosquitto(tmp_path, port, f"password_file {secrets}"),
        pytest.raises(
            LandingError, match=rf"server 127.0.0.1:{port}: found 'Not authorized', expected a session"
        ),
    ):
        run_landing(settings, threading.Event())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topics": ()}, "topics: found none, expected at least one filter"),
        ({"topics": ("a/#/b",)}, "topic 'a/#/b': found no topic filter"),
        ({"topics": ("a+/b",)}, "topic 'a\\+/b': found no topic filter"),
        ({"client_id": ""}, "client_id: found '', expected a name"),
        ({"port": 0}, "port: found 0, expected 1 to 65535"),
        ({"inflight_max": 1}, "inflight_max: found 1, expected 2 to 65535"),
        ({"tls_cert": Path("c")}, "tls_cert, tls_key: found one of them, expected both or none"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(LandingError, match=message):
        LandingSettings(**{"topics": ("t",), "directory": tmp_path, "client_id": "c"} | changes)


def test_a_secret_that_is_not_in_the_environment_is_missed(tmp_path: Path) -> None:
    settings = LandingSettings(("t",), tmp_path, "c", password_env="NOT_THERE_AT_ALL")

    with pytest.raises(LandingError, match="environment variable NOT_THERE_AT_ALL: found nothing"):
        run_landing(settings, threading.Event())


def test_the_command_explains_itself_and_its_errors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    try:
        with pytest.raises(SystemExit) as left:
            main(["--help"])
        refused = main(["a/#/b", "--directory", str(tmp_path), "--client-id", "c"])
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(number, handler)

    out, err = capsys.readouterr()
    assert left.value.code == 0
    assert "--password-env" in out
    assert refused == 2
    assert "error: topic 'a/#/b'" in err


def test_names_sort_by_time_and_never_repeat_even_if_the_clock_goes_back(tmp_path: Path) -> None:
    first, second = LandingWriter(tmp_path, "a"), LandingWriter(tmp_path, "b")
    paths = [first.write([b"1\n"], 1000.0), first.write([b"2\n"], 1000.0), second.write([b"3\n"], 1000.0)]

    paths.append(LandingWriter(tmp_path, "a").write([b"4\n"], 500.0))

    assert len(set(paths)) == 4
    assert [path.read_text() for path in sorted([paths[0], paths[1], paths[3]])] == ["1\n", "2\n", "4\n"]


def test_unfinished_files_of_this_client_are_removed_and_others_are_left(tmp_path: Path) -> None:
    names = [LandingWriter(tmp_path, client).write([b"x\n"], 1.0).name for client in ("mine", "yours")]
    for name in names:
        (tmp_path / f".{name}.part").write_text("half a li")

    LandingWriter(tmp_path, "mine").clear()

    assert [path.name for path in tmp_path.glob(".*.part")] == [f".{names[1]}.part"]
    assert len(landing_files(tmp_path)) == 2


def test_old_files_expire_but_not_those_that_nobody_has_read(tmp_path: Path) -> None:
    writer = LandingWriter(tmp_path, "c")
    for moment in (100.0, 200.0, 300.0, 400.0):
        writer.write([b"x\n"], moment)
    (tmp_path / "notes.jsonl").write_text("not ours")

    assert expire_landing(tmp_path, 50, processed_before_s=150, now_s=450) == 1
    assert expire_landing(tmp_path, 150, now_s=450) == 1
    assert expire_landing(tmp_path, 150, now_s=450) == 0
    assert len(landing_files(tmp_path)) == 2
    assert (tmp_path / "notes.jsonl").exists()
    with pytest.raises(LandingFileError, match="older_than_s: found -1, expected"):
        expire_landing(tmp_path, -1)


def test_spark_reads_landed_messages_and_gives_reasons_for_the_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    LandingWriter(tmp_path, "c").write(
        [
            envelope("a/b", b'{"v": 1}\r\n{"v": 2}', 0.0),
            envelope("a/c", b"\xff\xfe", 0.0),
            b'{"topic": "half a li\n',
            envelope("a/d", b"x" * (RAW_BYTES_MAX + 1), 0.0),
            envelope(None, b"", 0.0),
        ],
        0.0,
    )
    (tmp_path / ".hidden.jsonl.part").write_text("unfinished")

    frame = read_landing(spark, tmp_path, source="mqtt", streaming=False)
    rows = frame.collect()

    assert frame.schema.fieldNames() == RECORD.fieldNames()
    assert [row["source"] for row in rows] == ["mqtt"] * 5
    assert (rows[0]["topic"], rows[0]["text"], rows[0]["reason"]) == ("a/b", '{"v": 1}\r\n{"v": 2}', None)
    assert (rows[1]["topic"], rows[1]["text"]) == ("a/c", base64.b64encode(b"\xff\xfe").decode())
    assert rows[1]["reason"] == "payload: found bytes that are not UTF-8, kept as base64, expected text"
    assert rows[2]["topic"].endswith(".jsonl")
    assert (rows[2]["text"], rows[2]["reason"][:32]) == (
        '{"topic": "half a li',
        "landed line: found no envelope, ",
    )
    assert len(rows[3]["text"]) == 4096
    assert rows[3]["reason"] == f"payload: found {RAW_BYTES_MAX + 1} bytes, expected at most {RAW_BYTES_MAX}"
    assert (rows[4]["text"], rows[4]["reason"]) == ("", None)


def test_a_stream_over_landed_files_reads_each_once_over_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = LandingWriter(tmp_path / "landing", "c")

    def run() -> None:
        rows = read_landing(spark, tmp_path / "landing", source="mqtt", streaming=True)
        sink = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(60)

    writer.write([envelope("t", b"1", 0.0), envelope("t", b"2", 0.0)], time.time())
    run()
    writer.write([envelope("t", b"3", 0.0)], time.time())
    run()

    got = spark.read.parquet(str(tmp_path / "out")).select("text").collect()
    assert sorted(row["text"] for row in got) == ["1", "2", "3"]


@needs_mosquitto
def test_listening_takes_nothing_from_anybody_and_ends_in_time(tmp_path: Path, port: int) -> None:
    settings = LandingSettings(("$share/all/a/#",), tmp_path / "none", "daemon", port=port)
    heard: list[bytes] = []
    thread = threading.Thread(target=lambda: heard.extend(landing.listen(settings, 3, 60)))
    thread.start()

    with publisher(port) as publish:
        number = 0
        while thread.is_alive():  # whenever it has subscribed
            publish("a/b", f"{number}")
            number += 1
            thread.join(0.05)

    assert len(heard) == 3
    assert {json.loads(line)["topic"] for line in heard} == {"a/b"}
    assert not (tmp_path / "none").exists()
    assert landing.listen(settings, 3, 0.1) == []
