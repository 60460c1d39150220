"""A snapshot in memory: immutable parts that versions share, folded from what each version changed."""
