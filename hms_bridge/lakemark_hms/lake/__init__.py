"""Lake tables as an engine sees them that knows only a Hive Metastore."""
