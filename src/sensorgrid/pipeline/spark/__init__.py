"""How Spark runs the pipeline: the session and its Java, what the shuffle carries, stream, backfill and replay."""
