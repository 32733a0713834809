"""Kafka through Spark's own connector, where it is on the class path.

The connector is not part of PySpark: it is one package, named when the session starts. Records come as they
are, each with its topic, and go through `parse` like those of any other source. User names and passwords are
read from environment variables that the settings name, never from the settings themselves.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.ingest.parsing import letter
from sensorgrid.pipeline.schema import RAW_BYTES_MAX

PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""The connector that fits this Spark, as --packages takes it."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class KafkaError(SensorGridError, RuntimeError):
    """Kafka cannot be reached from this session, or its settings cannot be right."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Where the records are; secrets are ``env:NAME``."""

    servers: str
    """host:port, separated by commas"""
    topics: str
    """names separated by commas, or a regular expression if it starts with ^"""
    start: str = "latest"
    """earliest, latest, or Kafka's JSON of offsets; a checkpoint goes first"""
    records_max: int = 1_000_000
    """records of one micro-batch"""
    protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"""
    mechanism: str = "SCRAM-SHA-512"
    """of SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"""
    user: str | None = None
    """env:NAME"""
    password: str | None = None
    """env:NAME"""
    truststore: str | None = None
    """file with the certificates to trust (PEM), where the system's own do not do"""

    def __post_init__(self) -> None:
        for key, allowed in (("protocol", _PROTOCOLS), ("mechanism", tuple(_MECHANISMS))):
            if getattr(self, key) not in allowed:
                raise KafkaError(
                    f"kafka {key}: found {getattr(self, key)!r}, expected one of {', '.join(allowed)}"
                )
        for key in ("user", "password"):
            found = getattr(self, key)
            if found is not None and not found.startswith("env:"):
                raise KafkaError(f"kafka {key}: found a value, expected env:NAME of an environment variable")
            if self.protocol.startswith("SASL") and found is None:
                raise KafkaError(f"kafka {key}: found none, expected env:NAME for {self.protocol}")
        if self.records_max < 1:
            raise KafkaError(f"kafka records_max: found {self.records_max}, expected 1 or more")


def read_kafka(
    session: SparkSession, settings: KafkaSettings, *, source: str, streaming: bool = True
) -> DataFrame:
    """Rows of `RECORD` from Kafka: value as text, and its topic.

    Raises
    ------
    KafkaError
        If the session has no Kafka connector; the message names the package to add.
    """
    reader: Any = session.readStream if streaming else session.read
    reader = reader.format("kafka")
    for key, value in options_of(settings, os.environ, streaming=streaming).items():
        reader = reader.option(key, value)
    try:
        loaded = reader.load()
        loaded.schema  # noqa: B018 - through Spark Connect nothing is looked up before
    except AnalysisException as error:
        if error.getCondition() not in ("KAFKA_DATA_SOURCE_NOT_ENABLED", "DATA_SOURCE_NOT_FOUND"):
            raise
        raise KafkaError(
            "kafka: found no connector in this Spark session, expected the package: start it with"
            f" --packages {PACKAGE}, or spark.jars.packages={PACKAGE}"
        ) from error
    return records_of(loaded, source)


def records_of(messages: DataFrame, source: str) -> DataFrame:
    """Rows of `RECORD` from rows with a binary `value` and a `topic`."""
    value = F.col("value")
    long = F.octet_length(value) > RAW_BYTES_MAX
    garbled = ~F.is_valid_utf8(value.cast("string"))
    size = F.octet_length(value).cast("string")
    return messages.select(
        F.lit(source).alias("source"),
        F.col("topic").cast("string").alias("topic"),
        F.when(long | garbled, letter(F.make_valid_utf8(F.substring(value, 1, 4096).cast("string"))))
        .otherwise(value.cast("string"))
        .alias("text"),
        F.when(value.isNull(), F.lit("record is empty"))
        .when(long, F.concat(F.lit("record of "), size, F.lit(f" bytes, expected at most {RAW_BYTES_MAX}")))
        .when(garbled, F.lit("record is not UTF-8"))
        .alias("reason"),
    )


def options_of(settings: KafkaSettings, environment: Mapping[str, str], *, streaming: bool) -> dict[str, str]:
    """The connector's options; secrets are looked up here, and only here."""
    options = {
        "kafka.bootstrap.servers": settings.servers,
        "subscribePattern" if settings.topics.startswith("^") else "subscribe": settings.topics,
        "startingOffsets": settings.start if streaming else settings.start.replace("latest", "earliest"),
        "kafka.security.protocol": settings.protocol,
        # Records that Kafka has deleted before we came are its operator's decision, not a reason to stop.
        "failOnDataLoss": "false",
    }
    if streaming:
        options["maxOffsetsPerTrigger"] = str(settings.records_max)
    if settings.truststore:
        options |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": settings.truststore}
    if settings.protocol.startswith("SASL"):
        user, password = (_secret(key, getattr(settings, key), environment) for key in ("user", "password"))
        options["kafka.sasl.mechanism"] = settings.mechanism
        options["kafka.sasl.jaas.config"] = (
            f'{_MECHANISMS[settings.mechanism]} required username="{user}" password="{password}";'
        )
    return options


def _secret(key: str, reference: str, environment: Mapping[str, str]) -> str:
    name = reference.removeprefix("env:")
    if name not in environment:
        raise KafkaError(f"kafka {key}: found no environment variable {name}, expected one with the {key}")
    # The login module's own quoting.
    return environment[name].replace("\\", "\\\\").replace('"', '\\"')
