"""A grid fed live by mosquitto and NATS at once, by the wall clock: the whole way, with real servers."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import nats
import paho.mqtt.client as mqtt
import pytest
from pyspark.sql import SparkSession

from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.lake import Lake
from sensorgrid.pipeline.receiving import landing_daemons
from sensorgrid.pipeline.settings import settings_of

PATH = os.environ.get("PATH", "") + ":/usr/sbin"
MOSQUITTO, NATS = shutil.which("mosquitto", path=PATH), shutil.which("nats-server", path=PATH)
pytestmark = pytest.mark.skipif(
    MOSQUITTO is None or NATS is None, reason="needs mosquitto and nats-server (Debian's packages)"
)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def server(*command: str, port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def message(sensor: str, value: float) -> bytes:
    now = datetime.now(UTC).isoformat()
    record = {"sensor": sensor, "attribute": "air_temperature", "time": now, "value": value, "unit": "degC"}
    return json.dumps(record | {"longitude": 10.0 + len(sensor), "latitude": 50.0}).encode()


async def to_nats(port: int, payloads: list[bytes]) -> None:
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = connection.jetstream()
    await stream.add_stream(name="READINGS", subjects=["readings.>"])
    for payload in payloads:
        await stream.publish("readings.x", payload)
    await connection.close()


def to_mqtt(port: int, payloads: list[bytes]) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for payload in payloads:
        client.publish("sensors/x", payload, qos=1).wait_for_publish(timeout=10)
    client.disconnect()
    client.loop_stop()


def test_messages_of_both_servers_are_in_the_grid_of_their_tick(spark: SparkSession, tmp_path: Path) -> None:
    mqtt_port, nats_port = free_port(), free_port()
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {mqtt_port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    settings = settings_of(
        {
            "grid": {"shape": [32, 16], "tick": 5, "resolution_bits": 1, "region_digits": 1},
            "timing": {"settle": 1, "lateness": 60, "max_age": 300},
            "gridding": {"calibrate": False},
            "spark": {"trigger": 0.5},
            "sources": [
                {
                    "kind": "mqtt",
                    "port": mqtt_port,
                    "host": "127.0.0.1",
                    "topics": ["sensors/#"],
                    "client_id": "test",
                },
                {"kind": "nats", "servers": f"nats://127.0.0.1:{nats_port}", "stream": "READINGS"},
            ],
        },
        "test",
        tmp_path,
    )
    stop = threading.Event()
    assert MOSQUITTO is not None
    assert NATS is not None
    with (
        server(MOSQUITTO, "-c", str(config), port=mqtt_port),
        server(
            NATS, "-js", "-a", "127.0.0.1", "-p", str(nats_port), "-sd", str(tmp_path / "js"), port=nats_port
        ),
        landing_daemons(settings, print),
    ):
        asyncio.run(to_nats(nats_port, [message(f"N{n}", 10 + n) for n in range(5)] + [b"\xff\xfe no text"]))

        def listen(report: jobs.Report) -> None:
            if report.batch == 0:
                to_mqtt(mqtt_port, [message(f"MM{n}", 20 + n) for n in range(5)] + [b"no JSON"])
            if report.total.raw >= 12 and report.total.blocks >= 2:
                stop.set()

        outcome = jobs.run(spark, settings, stop, seconds=60, listen=listen)

    total = outcome.total
    assert (total.raw, total.used, total.dead_letter) == (12, 10, 2)
    assert outcome.unbalanced == []
    sensors = {o["sensor"] for row in Lake(settings.lake).tiles().to_pylist() for o in row["observations"]}
    assert len(sensors) >= 5
    reasons = Lake(settings.lake).letters()["reason"].to_pylist()
    assert len(reasons) == 2
