"""Defaults of settings that commands and the service share."""

from __future__ import annotations

from typing import Final

STORE_URL: Final = "sqlite:///lakemark-data/lakemark.db"
