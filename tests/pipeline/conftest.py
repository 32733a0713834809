"""One Spark session for all tests of the pipeline: starting it costs more than most of them."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sensorgrid.pipeline.spark.session import start_session

# Tests start a dozen Javas that live for seconds: compiling for peak speed costs each more than it gains.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session("local[2]", name="tests", conf={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
