"""A grid fed live by mosquitto and NATS at once, by the wall clock: the whole way, with real servers."""

import asyncio
import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import nats
import paho.mqtt.client as mqtt
from pyspark.sql import SparkSession

from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import PipelineSettings, settings_of
from sensorgrid.pipeline.sources.receiving import landing_daemons
from servers import free_port, mosquitto, nats_server, needs_mosquitto, needs_nats

pytestmark = [needs_mosquitto, needs_nats]


def message(sensor: str, value: float) -> bytes:
    now = datetime.now(UTC).isoformat()
    record = {"sensor": sensor, "attribute": "air_temperature", "time": now, "value": value, "unit": "degC"}
    return json.dumps(record | {"longitude": 10.0 + len(sensor), "latitude": 50.0}).encode()


async def to_nats(url: str, payloads: list[bytes]) -> None:
    connection = await nats.connect(url)
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
        client.publish("sensors/x", payload, qos=1).wait_for_publish(timeout=120)
    client.disconnect()
    client.loop_stop()


def settings_for(folder: Path, mqtt_port: int, nats_url: str) -> PipelineSettings:
    content = {
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
            {"kind": "nats", "servers": nats_url, "stream": "READINGS"},
        ],
    }
    return settings_of(content, "test", folder)


def test_messages_of_both_servers_are_in_the_grid_of_their_tick(spark: SparkSession, tmp_path: Path) -> None:
    stop, port = threading.Event(), free_port()

    def listen(report: jobs.Report) -> None:
        if report.batch == 0:
            to_mqtt(port, [message(f"MM{n}", 20 + n) for n in range(5)] + [b"no JSON"])
        if report.total.raw >= 12 and report.total.blocks >= 2:
            stop.set()

    with mosquitto(tmp_path, port), nats_server(tmp_path, "-js") as url:
        settings = settings_for(tmp_path, port, url)
        asyncio.run(to_nats(url, [message(f"N{n}", 10 + n) for n in range(5)] + [b"\xff\xfe no text"]))
        with landing_daemons(settings, print):
            outcome = jobs.run(spark, settings, stop, seconds=900, listen=listen)

    total = outcome.total
    assert (total.raw, total.used, total.dead_letter) == (12, 10, 2)
    assert outcome.unbalanced == []
    sensors = {o["sensor"] for row in Lake(settings.lake).tiles().to_pylist() for o in row["observations"]}
    assert len(sensors) >= 5
    reasons = Lake(settings.lake).letters()["reason"].to_pylist()
    assert len(reasons) == 2
