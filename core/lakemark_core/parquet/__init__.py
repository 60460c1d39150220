"""Parquet files as their footers tell of them: statistics, and how columns are stored."""
