"""Predicates; see ``lakemark.expressions``."""

from lakemark_core.expressions import *  # noqa: F403
