"""The keys that a store in FoundationDB keeps for itself: behind the contract's, at ``0xff`` after the prefix."""

from __future__ import annotations

from typing import Final

from ..api import KEYS_END, strinc

FORMAT_KEY: Final = KEYS_END + b"/format"
EXPORTS: Final = KEYS_END + b"/export/"
"""One for each running export: its id; the value is the version until which commits are noted for it, 8 bytes."""
LOG: Final = KEYS_END + b"/log/"
"""What commits wrote while an export was running: versionstamp of the commit (10 bytes), number of the entry (2)."""
FENCE: Final = KEYS_END + b"/fence"
"""Read by every commit; an export that begins writes it, and so refuses those that do not know of it."""
EXPORTS_END: Final = strinc(EXPORTS)
LOG_END: Final = strinc(LOG)
