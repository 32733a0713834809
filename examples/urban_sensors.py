"""Eighty sensors of a city that never was, over MQTT: wind, and the smoke of a fire that it carries away.

mosquitto -p 1883
python examples/urban_sensors.py --every 10
"""

import argparse
import json
import sys
import time
from datetime import UTC, datetime

import numpy as np
import paho.mqtt.client as mqtt

WIDTH, HEIGHT = 12_800, 6_400
SENSORS = 80
FIRE = np.array([3_800, 2_600])


def wind(x: np.ndarray, y: np.ndarray, now_s: float) -> tuple[np.ndarray, np.ndarray]:
    """From the west-south-west, a little slower in the middle of the city, veering over half an hour."""
    angle = np.radians(20 + 10 * np.sin(now_s / 1800 * 2 * np.pi))
    speed = 4 - 1.2 * np.exp(-((x - WIDTH / 2) ** 2 + (y - HEIGHT / 2) ** 2) / 3000**2)
    return speed * np.cos(angle), speed * np.sin(angle)


def dust(x: np.ndarray, y: np.ndarray, now_s: float) -> np.ndarray:
    """Micrograms in a cubic metre: the city's own, and a plume that widens and thins downwind of the fire."""
    u, v = (float(part[0]) for part in wind(FIRE[:1], FIRE[1:], now_s))
    ahead = ((x - FIRE[0]) * u + (y - FIRE[1]) * v) / np.hypot(u, v)
    aside = ((y - FIRE[1]) * u - (x - FIRE[0]) * v) / np.hypot(u, v)
    wide = 1800 + 0.1 * np.maximum(ahead, 0)
    along = np.where(ahead < 0, np.exp(-((ahead / 1800) ** 2) / 2), 1 / (1 + (ahead / 3500) ** 2))
    return 9 + 60 * along * np.exp(-((aside / wide) ** 2) / 2)


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description="Publish synthetic sensors of a city.")
    options.add_argument("--host", default="localhost", help="of the MQTT server")
    options.add_argument("--port", type=int, default=1883)
    options.add_argument(
        "--every", type=float, default=10, help="seconds between two reports of a sensor (10)"
    )
    options.add_argument("--seconds", type=float, default=np.inf, help="how long; for ever if left out")
    chosen = options.parse_args()
    random = np.random.default_rng(3)
    x, y = random.uniform(0, WIDTH, SENSORS).round(), random.uniform(0, HEIGHT, SENSORS).round()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    try:
        client.connect(chosen.host, chosen.port)
    except OSError as error:
        sys.exit(f"urban_sensors: {chosen.host}:{chosen.port}: {error}; expected an MQTT server")
    client.loop_start()
    end = time.monotonic() + chosen.seconds
    while time.monotonic() < end:
        now_s = time.time()
        when = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds")
        values = np.stack([*wind(x, y, now_s), dust(x, y, now_s)]) + random.normal(
            0, [[0.3], [0.3], [1.0]], (3, SENSORS)
        )
        for number, (u, v, pm25) in enumerate(values.T.round(2).tolist()):
            said = {"sensor": f"s{number:02}", "x": x[number], "y": y[number], "time": when}
            client.publish(
                f"urban/s{number:02}", json.dumps(said | {"u": u, "v": v, "pm25": max(pm25, 0)}), qos=1
            )
        print(f"{when}  {SENSORS} sensors, dust up to {values[2].max():.0f} µg/m³", flush=True)
        time.sleep(max(0, chosen.every - (time.time() - now_s)))
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
