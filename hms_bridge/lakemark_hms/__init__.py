"""The Hive Metastore facade: Thrift in front, Lakemark's domains behind."""
