"""From the store to a snapshot: what versions changed, where to begin, what comes on top."""
