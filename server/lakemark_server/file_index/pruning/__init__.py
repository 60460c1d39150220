"""Which files, and which whole parts, can hold rows that a predicate selects: from statistics alone, sound."""
