"""Ending versions, and removing files and metadata that nobody needs any more."""
