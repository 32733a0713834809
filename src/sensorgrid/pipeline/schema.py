"""The shapes of the rows that travel between the stages, in one place.

A source yields *records* (one text each, as received) or *measurements* directly; a mapping turns records into
measurements, one row per value; quality control adds a flag. Every row has a `reason` from the start: a record
that could not be read stays a row, with a reason and without a value, until it lies in the dead letters.
"""

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ByteType,
    DoubleType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

RECORD = StructType(
    [
        StructField("source", StringType(), nullable=False),  # which source of the configuration
        StructField("topic", StringType()),  # file, MQTT topic, NATS subject: where in the source
        StructField("text", StringType()),  # one JSON object or CSV line, at most RAW_BYTES_MAX long
        StructField("reason", StringType()),  # why it cannot be read; null if it can be tried
    ]
)

MEASUREMENT = StructType(
    [
        StructField("sensor", StringType()),
        StructField("attribute", StringType()),  # CF standard name
        StructField("longitude", DoubleType()),  # or x, on a planar grid
        StructField("latitude", DoubleType()),  # or y
        StructField(
            "elevation", DoubleType()
        ),  # of the sensor above the sea, in metres; null if nobody says it
        StructField("event_time", TimestampType()),
        StructField("value", DoubleType()),
        StructField("unit", StringType()),
        StructField("source", StringType()),
        StructField("raw", StringType()),  # the record it came from, for people who search for a fault
        StructField("reason", StringType()),  # set: a dead letter
    ]
)

FLAGGED = StructType(
    [
        *MEASUREMENT.fields,  # values are in canonical units from here on
        StructField(
            "flag", ByteType(), nullable=False
        ),  # QARTOD: 1 pass 2 not evaluated 3 suspect 4 fail 9 missing
        StructField("test", StringType()),  # the test that set a flag other than 1 or 2
    ]
)

RECORD_ARROW = to_arrow_schema(RECORD, timezone="UTC")
MEASUREMENT_ARROW = to_arrow_schema(MEASUREMENT, timezone="UTC")
"""The same in Arrow's words, for rows that are made or read outside of Spark."""

RAW_BYTES_MAX = 1 << 20
"""A longer record is a dead letter; a dead letter keeps this many bytes at most (see `LETTER_BYTES_MAX`)."""
LETTER_BYTES_MAX = 1 << 12
"""So much of a record that cannot be read is kept for people."""
