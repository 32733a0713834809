"""What brokers do: each mechanism a handler table over the broker's state; they never import each other."""
