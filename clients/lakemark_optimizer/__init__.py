"""Workers that optimize tables: ``lakemark optimizer run`` takes tasks of the service and does them with pyarrow, with
PySpark in its own process, or by spark-submit (docs/management.md)."""
