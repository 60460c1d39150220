"""Hive's notification log: the events of a catalog, told as a Hive Metastore tells its own (docs/hms.md)."""
