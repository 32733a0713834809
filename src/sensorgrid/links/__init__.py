"""Brokers, clients and pipeline over the network: connections, greetings, and the drivers of brokers and clients."""
