"""Parquet files of lake tables: statistics from footers, and a small writer on pyarrow."""

from lakemark.parquet.footers import describe, describe_metadata
from lakemark.parquet.rows import Rows
from lakemark.parquet.writer import WrittenFiles, write_table

__all__ = ["Rows", "WrittenFiles", "describe", "describe_metadata", "write_table"]
