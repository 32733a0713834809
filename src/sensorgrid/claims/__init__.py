"""Everything that we claim, each with the command that shows it, its limit, and whether it holds."""
