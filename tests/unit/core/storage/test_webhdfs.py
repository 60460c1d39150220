"""HDFS over HTTP, as far as a single answer goes."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from lakemark_core.storage.connections import _web_file_system


class _OneFile(BaseHTTPRequestHandler):
    """A name node that says of each path that it is a file."""

    def do_GET(self) -> None:
        status = {"type": "FILE", "length": 3, "modificationTime": 1_800_000_000_123}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"FileStatus": status}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def test_when_a_file_was_written_is_known() -> None:
    with HTTPServer(("127.0.0.1", 0), _OneFile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        system, _ = _web_file_system(f"http://127.0.0.1:{server.server_port}")
        (info,) = system.get_file_info(["/w/t/_SUCCESS"])
        server.shutdown()
    assert info.size == 3
    assert abs(info.mtime_ns - 1_800_000_000_123_000_000) < 1_000_000
