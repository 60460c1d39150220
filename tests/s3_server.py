"""An S3 server on loopback, a process of its own: moto's, which keeps buckets in memory and believes any signature."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote
from urllib.request import Request, urlopen
from xml.etree import ElementTree as ET

ACCESS_KEY: Final = "lakemark-test"
SECRET_KEY: Final = "lakemark-test-secret"  # noqa: S105
REGION: Final = "us-east-1"

_SERVE: Final = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class S3Server:
    """``start`` takes a second or two; ``close`` ends the process. Requests of tests themselves go past any proxy."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip().isdecimal(), "the S3 server did not start"
        self.port = int(line)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)

    def make_bucket(self, name: str) -> None:
        self._ask("PUT", f"/{name}")

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._ask("PUT", f"/{bucket}/{quote(key)}", data)

    def get(self, bucket: str, key: str) -> bytes:
        return self._ask("GET", f"/{bucket}/{quote(key)}")

    def delete(self, bucket: str, key: str) -> None:
        self._ask("DELETE", f"/{bucket}/{quote(key)}")

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """All keys of a bucket that begin with ``prefix``, in order."""
        keys: list[str] = []
        token = ""
        while True:
            query = f"list-type=2&prefix={quote(prefix, safe='')}"
            answer = self._xml(f"/{bucket}?{query}" + (f"&continuation-token={quote(token, safe='')}" if token else ""))
            keys += [key.text or "" for key in answer.iterfind("{*}Contents/{*}Key")]
            token = answer.findtext("{*}NextContinuationToken") or ""
            if not token:
                return keys

    def begin_upload(self, bucket: str, key: str) -> None:
        """Begins a multipart upload and leaves it."""
        self._ask("POST", f"/{bucket}/{quote(key)}?uploads", b"")

    def uploads(self, bucket: str) -> list[str]:
        """The keys of multipart uploads that were neither completed nor aborted."""
        return [key.text or "" for key in self._xml(f"/{bucket}?uploads").iterfind("{*}Upload/{*}Key")]

    def _xml(self, target: str) -> ET.Element:
        return ET.fromstring(self._ask("GET", target))  # noqa: S314 - our own server

    def _ask(self, method: str, target: str, data: bytes | None = None) -> bytes:
        headers = {
            "Authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/{REGION}/s3/aws4_request",
            "Content-Type": "application/octet-stream",
        }
        with urlopen(Request(self.endpoint + target, data, headers, method=method), timeout=30) as answer:  # noqa: S310
            content: Any = answer.read()
            return bytes(content)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of a test's own on a server that tests share."""

    server: S3Server
    name: str

    @property
    def uri(self) -> str:
        return f"s3://{self.name}"

    def keys(self, prefix: str = "") -> list[str]:
        return self.server.keys(self.name, prefix)

    def put(self, key: str, data: bytes) -> None:
        self.server.put(self.name, key, data)

    def delete(self, key: str) -> None:
        self.server.delete(self.name, key)

    def begin_upload(self, key: str) -> None:
        self.server.begin_upload(self.name, key)

    def uploads(self) -> list[str]:
        return self.server.uploads(self.name)
