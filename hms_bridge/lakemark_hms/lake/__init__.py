"""Lake tables as they look to an engine that knows only the Hive Metastore."""
