"""Which files, and which whole parts, may have rows that a predicate selects. Decided from statistics alone; sound."""
