"""Property tests without a clock: on a busy machine a deadline of Hypothesis fails what is right."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
