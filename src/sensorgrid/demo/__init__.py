"""The whole of Sensorgrid on one machine: a synthetic earth, Spark, eight brokers, 24 clients, and a verdict."""
