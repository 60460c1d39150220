"""Plans: the files of a snapshot that a predicate needs, packed for transport or aggregated."""
