"""A Spark session that works as it comes: on a laptop, on a cluster, through Spark Connect.

Everything that people otherwise learn one by one is set here: which Java and which Python, the loopback address
where a host name does not resolve, UTC, few shuffle partitions on few cores, RocksDB for state (the only store
that `transformWithState` accepts), our code on the executors.
"""

import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from subprocess import STDOUT
from threading import Thread
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import sensorgrid
from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.spark.java import cache_directory, java_home

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ARROW_ROWS = 100_000
"""Rows of one Arrow batch: large enough that the cost per batch does not show, small enough for memory."""
PAUSE_S = 0.5

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    # Changelogs instead of whole snapshots at each commit: small micro-batches end much sooner.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The other manager, Spark's default for folders, starts three or four processes (readlink, chmod) for each small
    # file of the checkpoint, because Hadoop's native library is not part of pyspark. Both rename into place.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.python.worker.reuse": "true",
    "spark.log.level": "ERROR",
}


class SessionError(SensorGridError, RuntimeError):
    """A session that cannot be had."""


def start_session(
    master: str = "local[*]",
    *,
    name: str = "sensorgrid",
    conf: Mapping[str, str] | None = None,
    driver_memory: str = "1500m",
    log: Path | None = None,
) -> SparkSession:
    """A session on `master`: ``local[N]``, ``spark://host:port``, ``yarn``…, or ``sc://host:port`` (Connect).

    On a cluster our package goes to the executors as a zip file; what it imports (NumPy, SciPy, pyarrow,
    pandas) must be installed there. `conf` overrides any setting of ours. What Spark says on its own
    account goes to `log`, or to standard error without one.
    """
    if master.startswith("sc://"):
        return _connect(master, conf or {})
    _prepare_environment(master)
    local = master.startswith("local")
    cores = _cores(master)
    settings = _DEFAULTS | {
        "spark.master": master,
        "spark.app.name": name,
        "spark.driver.memory": driver_memory,
        "spark.sql.shuffle.partitions": str(cores if local else 2 * cores),
        "spark.default.parallelism": str(cores),
    }
    if local:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= dict(conf or {})
    settings.setdefault("spark.driver.extraJavaOptions", _java_options())
    _launch(settings, log)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not local:
        session.addArtifacts(str(package_zip()), pyfile=True)
    return session


def _launch(settings: Mapping[str, str], log: Path | None) -> None:
    """Start Java with its output where people want it; a Java that runs already is kept."""
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    if log is None:
        gateway = _gateway(conf, None)
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            gateway = _gateway(conf, {"stdout": out, "stderr": STDOUT})
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _gateway(conf: SparkConf, popen: dict[str, Any] | None) -> Any:
    """Java, awaited in a thread of its own, so that Ctrl-C leaves no Java behind.

    Java tells its port in a folder of pyspark's, and ends when its input does. If pyspark is interrupted while it waits
    for the port, it removes the folder; Java then fails before it looks at its input, and its server never ends. Only
    the main thread is interrupted. So the thread waits on, or ends with the process; in both cases the folder stays
    until Java has told its port, and Java ends by itself.
    """
    found: Future[Any] = Future()

    def work() -> None:
        try:
            found.set_result(launch_gateway(conf=conf, popen_kwargs=popen))  # type: ignore[no-untyped-call]
        except BaseException as error:
            found.set_exception(error)

    try:
        Thread(target=work, daemon=True, name="java").start()
        while not wait([found], PAUSE_S).done:  # with a pause, or a signal may not be seen everywhere
            pass
        return found.result()
    except KeyboardInterrupt:
        found.add_done_callback(_abandon)
        raise


def _abandon(launched: "Future[Any]") -> None:
    """Nobody waits for this Java any more: close its input."""
    if launched.exception() is None and launched.result().proc is not None:
        launched.result().proc.stdin.close()


def package_zip() -> Path:
    """Our package as one file, for executors that do not have it installed."""
    root = Path(sensorgrid.__file__).parent
    files = sorted(p for p in root.rglob("*") if p.suffix in {".py", ".toml", ".csv"})
    stamp = f"{sensorgrid.__version__}-{max(p.stat().st_mtime_ns for p in files):x}"
    target = cache_directory() / f"sensorgrid-{stamp}.zip"
    if not target.exists():
        handle, fresh = tempfile.mkstemp(dir=target.parent, suffix=".zip")
        os.close(handle)
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                archive.write(path, Path("sensorgrid") / path.relative_to(root))
        os.replace(fresh, target)
    return target


def _connect(master: str, conf: Mapping[str, str]) -> SparkSession:
    try:
        session: SparkSession = SparkSession.builder.remote(master).getOrCreate()
    except Exception as error:
        reason = str(error).strip().splitlines()[:1]
        raise SessionError(
            f"spark {master}: found no Connect server ({''.join(reason)[:200]}), expected one there"
        ) from error
    for key, value in (_DEFAULTS | dict(conf)).items():
        if _settable(session, key):
            session.conf.set(key, value)
    session.addArtifacts(str(package_zip()), pyfile=True)
    return session


def _settable(session: Any, key: str) -> bool:
    """Whether a setting can be changed in a running server; the others are its operator's business."""
    return key.startswith("spark.sql.") and bool(session.conf.isModifiable(key))


def _prepare_environment(master: str) -> None:
    """What Spark reads from the environment, unless somebody has said otherwise."""
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # A SPARK_HOME of another Spark would mix its jars with our Python.
    if "SPARK_HOME" in os.environ:
        import pyspark

        ours = Path(pyspark.__file__).parent
        if Path(os.environ["SPARK_HOME"]).resolve() != ours.resolve():
            os.environ["SPARK_HOME"] = str(ours)


def _cores(master: str) -> int:
    if master.startswith("local["):
        inside = master[len("local[") :].split(",")[0].rstrip("]")
        if inside.isdigit():
            return int(inside)
    if master == "local":
        return 1
    return os.cpu_count() or 1


def _java_options() -> str:
    """A log4j configuration that keeps Spark's chatter off the user's terminal, and room on the stack."""
    path = cache_directory() / "log4j2.properties"
    text = (
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = console\n"
        "appender.console.type = Console\nappender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\nappender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}\n"
    )
    if not path.exists() or path.read_text() != text:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.replace(path)
    # When a micro-batch is cut short, Spark searches the error for known causes with a regular expression that
    # recurses over its whole text: a usual stack is too small for that.
    return f"-Dlog4j2.configurationFile=file:{path} -Xss16m"
