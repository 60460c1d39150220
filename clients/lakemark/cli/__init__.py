"""The command line: ``lakemark --help``."""

from lakemark.cli.app import main

__all__ = ["main"]
