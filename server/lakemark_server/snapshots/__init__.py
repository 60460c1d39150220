"""Snapshots: the files of a version, read from the store, compared, and folded into bases."""
