"""The landing daemons of a configuration: one thread per MQTT source, started again if it fails.

They run beside the stream, or alone (`sensorgrid pipeline land`), so that messages are received and acknowledged
while Spark is down.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.settings import MqttSource, PipelineSettings
from sensorgrid.pipeline.sources.landing import LandingSettings, run_landing

RETRY_S = 5.0
Say = Callable[[str], None]


class ReceivingError(SensorGridError, ValueError):
    """Nothing to receive."""


@contextmanager
def landing_daemons(settings: PipelineSettings, say: Say) -> Iterator[None]:
    """Receive what the configuration asks for as long as the block runs."""
    stop = threading.Event()
    threads = [_start(s, stop, say) for s in settings.sources if isinstance(s, MqttSource) and s.daemon]
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=30)


def land_all(settings: PipelineSettings, stop: threading.Event, say: Say) -> None:
    """Receive until asked to stop."""
    sources = [s for s in settings.sources if isinstance(s, MqttSource)]
    if not sources:
        raise ReceivingError("sources: found no mqtt, expected at least one [[sources]] with kind = 'mqtt'")
    threads = [_start(s, stop, say) for s in sources]
    for source in sources:
        say(f"receiving {', '.join(source.topics)} from {source.host}:{source.port} into {source.landing}")
    stop.wait()
    for thread in threads:
        thread.join(timeout=30)


def landing_settings(source: MqttSource) -> LandingSettings:
    """What a landing daemon of this source needs to know."""
    return LandingSettings(
        topics=source.topics,
        directory=Path(source.landing or "landing"),
        client_id=source.client_id or "sensorgrid",
        host=source.host,
        port=source.port,
        username_env=source.username_env,
        password_env=source.password_env,
        tls_ca=Path(source.ca_file) if source.ca_file else None,
        tls_cert=Path(source.cert_file) if source.cert_file else None,
        tls_key=Path(source.key_file) if source.key_file else None,
        tls=source.tls or any((source.ca_file, source.cert_file, source.key_file)),
    )


def _start(source: MqttSource, stop: threading.Event, say: Say) -> threading.Thread:
    landing = landing_settings(source)

    def work() -> None:
        while not stop.is_set():
            try:
                run_landing(landing, stop)
            except Exception as error:  # whatever it is, receiving must go on
                say(f"landing of {source.host}:{source.port}: {error}; trying again in {RETRY_S:g} s")
                stop.wait(RETRY_S)

    thread = threading.Thread(target=work, name=f"landing {source.host}", daemon=True)
    thread.start()
    return thread
