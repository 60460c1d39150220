"""Doors as names of the Metastore: ``t__append`` looks like a table into which Spark inserts (docs/sql-writes.md)."""
