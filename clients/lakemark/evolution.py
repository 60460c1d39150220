"""Changes of schemas; see ``lakemark.evolution``."""

from lakemark_core.evolution import *  # noqa: F403
