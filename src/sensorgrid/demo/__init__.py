"""The whole of Sensorgrid in a minute: a synthetic earth, Spark, eight brokers, two dozen clients, and a verdict."""
