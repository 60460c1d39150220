"""Snapshots of lake tables: which files a version has, and which of them a reader needs."""
