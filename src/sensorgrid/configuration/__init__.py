"""What an operator writes down: one TOML file for pipeline and brokers, overridden by the environment."""
