"""Brokers, clients and pipeline over the network: connections, the first words on them, and who drives whom."""
