"""Entries as bytes: the blocks of commits, and pages that are compressed, read and decoded column by column."""
