"""The keys that a store in FoundationDB keeps for itself, at ``0xff`` after the prefix, behind the contract's keys."""

from __future__ import annotations

from typing import Final

from ..api import KEYS_END, strinc

FORMAT_KEY: Final = KEYS_END + b"/format"
EXPORTS: Final = KEYS_END + b"/export/"
"""One key for each running export: its id. The value is the version until which commits are noted for it, 8 bytes."""
LOG: Final = KEYS_END + b"/log/"
"""What commits wrote while an export ran. Keys: versionstamp of the commit (10 bytes), number of the entry (2),
which says how the entry names keys (``log.noted``)."""
FENCE: Final = KEYS_END + b"/fence"
"""Read by every commit. An export writes it when it begins, which refuses commits that do not know of the export."""
EXPORTS_END: Final = strinc(EXPORTS)
LOG_END: Final = strinc(LOG)
