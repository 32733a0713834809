"""What brokers do: each mechanism writes boards of its own and reads the others'; they never import each other."""
