"""From the store to a snapshot: what versions changed, where folding begins, and what comes on top."""
