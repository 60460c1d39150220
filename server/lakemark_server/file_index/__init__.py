"""Entries of files as columns, pages and parts; pruning and planning over them. Knows no versions and no store."""
