"""Statements through doors, with the calls and files of Spark's own writer."""
