"""Types of columns, schemas, and values of partitions; see ``lakemark.types``."""

from lakemark_core.types import *  # noqa: F403
