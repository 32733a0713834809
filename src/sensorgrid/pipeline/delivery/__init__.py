"""From published grids to the brokers: gateways, what they have missed, and the sink for other Spark jobs."""
