"""Messages that clients have really sent, for tests that change them: recorded, kept in a file, and read again.

``python -m pytest -p tests.hms_recording tests/integration`` records what the clients of these tests send to servers in
their process; ``python -m tests.hms_recording ARGUMENTS`` is ``lakemark ARGUMENTS``, and records what comes to the
service, as from ``scripts/conformance``. Both add to the file.
"""

from __future__ import annotations

import atexit
import gzip
import re
import struct
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Final

from lakemark_hms.wire.dispatch import Dispatcher, Session
from lakemark_hms.wire.inbox import Inbox, Message

FILE: Final = Path(__file__).parent / "integration" / "data" / "hms_messages.gz"
_EACH_MAX: Final = 6  # of one method
_BYTES_MAX: Final = 6_000
_PATH: Final = re.compile(rb"/(?:tmp|dev/shm|work)/[\x21-\x7e]*")


def messages() -> list[bytes]:
    """Whole messages, as they were sent, but that paths lead nowhere."""
    data = gzip.decompress(FILE.read_bytes())
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("!I", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


class _Recorder:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_method: dict[str, dict[int, bytes]] = defaultdict(dict)
        for one in messages() if FILE.exists() else ():
            self._add(one)

    def _add(self, message: bytes) -> None:
        inbox = Inbox(1 << 20)
        inbox.feed(message)
        taken = inbox.take(0)
        assert taken is not None
        known = self._by_method[taken.header.name]
        # Those that are the most different in size: the smallest, the largest, and some in between.
        known.setdefault(len(message).bit_length() * 4 + len(message) % 4, message)
        if len(known) > _EACH_MAX:
            known.pop(sorted(known)[len(known) // 2])

    def record(self, message: Message) -> None:
        name = message.header.name.encode()
        start = message.data.rfind(name, 0, message.header.body) - 8
        whole = message.data[max(0, start) : message.end]
        if start >= 0 and len(whole) <= _BYTES_MAX:
            with self._lock:
                self._add(_PATH.sub(lambda found: b"/dev/null/".ljust(len(found[0]), b"x")[: len(found[0])], whole))

    def save(self) -> None:
        kept = [known[key] for _, known in sorted(self._by_method.items()) for key in sorted(known)]
        FILE.parent.mkdir(exist_ok=True)
        data = b"".join(struct.pack("!I", len(one)) + one for one in kept)
        FILE.write_bytes(gzip.compress(data, 9, mtime=0))


def _begin() -> None:
    recorder = _Recorder()
    answer = Dispatcher.answer

    def recorded(self: Dispatcher, message: Message, session: Session) -> bytes | None:
        recorder.record(message)
        return answer(self, message, session)

    Dispatcher.answer = recorded  # type: ignore[method-assign]
    atexit.register(recorder.save)


def pytest_configure() -> None:
    """Called by pytest if this is loaded as a plugin."""
    _begin()


if __name__ == "__main__":
    from lakemark.cli.app import run

    _begin()
    sys.exit(run(sys.argv[1:]))
