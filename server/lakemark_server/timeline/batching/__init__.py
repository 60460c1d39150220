"""Group commit: what the writers of a table ask at one moment is decided in turn, in one transaction."""
