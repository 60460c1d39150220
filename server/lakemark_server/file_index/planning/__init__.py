"""Plans: the files of a snapshot that a predicate needs, packed for the way to a reader or summed up."""
