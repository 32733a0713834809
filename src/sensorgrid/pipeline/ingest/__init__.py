"""From records of the world to flagged measurements: taking apart, units, limits, checks of single rows."""
