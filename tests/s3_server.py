"""S3 servers for tests: one in memory that starts in a second, a real one, and one that runs somewhere already.

``LAKEMARK_TEST_S3`` names the endpoint of the last kind, which all suites of storage then use. Its access key and
region are in the variables of AWS: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY`` and ``AWS_REGION``. Buckets are
named in the path, and the ``Host`` of requests is that of a proxy on this machine.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config

from tests.programs import versitygw

SERVER_VARIABLE: Final = "LAKEMARK_TEST_S3"
_NAMED: Final = os.environ.get(SERVER_VARIABLE, "")


def _of_named(variable: str, else_: str) -> str:
    return os.environ.get(variable) or else_ if _NAMED else else_


ACCESS_KEY: Final = _of_named("AWS_ACCESS_KEY_ID", "lakemark-test")
SECRET_KEY: Final = _of_named("AWS_SECRET_ACCESS_KEY", "lakemark-test-secret")
REGION: Final = _of_named("AWS_REGION", "us-east-1")
_START_S_MAX: Final = 30.0

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
    """One that runs at ``endpoint``. What tests themselves ask for goes past any proxy.

    ``close`` deletes the buckets that were made here, with all that is in them.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint: Final = endpoint
        self._buckets: list[str] = []
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, retries={"mode": "standard"}),
        )

    def close(self) -> None:
        for name in self._buckets:
            for key, upload in self._uploads(name):
                self._client.abort_multipart_upload(Bucket=name, Key=key, UploadId=upload)
            # Longer ones first: where keys are files, a directory is deleted when it is empty.
            for key in sorted(self.keys(name), key=len, reverse=True):
                self.delete(name, key)
            self._client.delete_bucket(Bucket=name)

    def make_bucket(self, name: str) -> None:
        elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": REGION}} if REGION != "us-east-1" else {}
        self._client.create_bucket(Bucket=name, **elsewhere)
        self._buckets.append(name)

    def bucket(self, name: str) -> Bucket:
        """A new bucket of about this name, that no other run has."""
        made = Bucket(self, f"{name}-{secrets.token_hex(4)}")
        self.make_bucket(made.name)
        return made

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=bucket, Key=key, Body=data)

    def get(self, bucket: str, key: str) -> bytes:
        return bytes(self._client.get_object(Bucket=bucket, Key=key)["Body"].read())

    def delete(self, bucket: str, key: str) -> None:
        self._client.delete_object(Bucket=bucket, Key=key)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """All keys of a bucket that begin with ``prefix``, in order."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def begin_upload(self, bucket: str, key: str) -> None:
        """Begins a multipart upload and leaves it."""
        self._client.create_multipart_upload(Bucket=bucket, Key=key)

    def uploads(self, bucket: str) -> list[str]:
        """The keys of multipart uploads that were neither completed nor aborted."""
        return [key for key, _ in self._uploads(bucket)]

    def _uploads(self, bucket: str) -> list[tuple[str, str]]:
        answer = self._client.list_multipart_uploads(Bucket=bucket)
        return [(each["Key"], each["UploadId"]) for each in answer.get("Uploads", ())]


class MotoServer(S3Server):
    """Moto's, a process of its own on loopback: it keeps buckets in memory and believes any signature."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip().isdecimal(), "the S3 server did not start"
        super().__init__(f"http://127.0.0.1:{int(line)}")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)


class VersityServer(S3Server):
    """VersityGW, a real server, which keeps objects as files of a new directory. Raises ProgramMissing."""

    def __init__(self) -> None:
        program = versitygw()
        self._directory = Path(tempfile.mkdtemp(prefix="lakemark-s3-"))
        for name in ("buckets", "attributes"):
            (self._directory / name).mkdir()
        port = _free_port()
        # Attributes beside the files: not every file system of a machine that tests has those of its own.
        command = [program, "--port", f"127.0.0.1:{port}", "--access", ACCESS_KEY, "--secret", SECRET_KEY]
        command += ["--region", REGION, "--quiet", "posix", "--sidecar", self._directory / "attributes"]
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, self._directory / "buckets"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self._wait(port)
        except BaseException:
            self.close()
            raise
        super().__init__(f"http://127.0.0.1:{port}")

    def _wait(self, port: int) -> None:
        end = time.monotonic() + _START_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, (self._directory / "log").read_text()
                assert time.monotonic() < end, "the S3 server did not start"
                time.sleep(0.05)
            else:
                return

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self._directory, ignore_errors=True)


KINDS: Final[Sequence[str]] = ("named",) if _NAMED else ("moto", "versitygw")
"""Servers for tests: the fast one, which comes with the packages, is the first one."""


def server_of(kind: str) -> S3Server:
    """A server of one of ``KINDS``. Raises ProgramMissing."""
    return S3Server(_NAMED) if kind == "named" else MotoServer() if kind == "moto" else VersityServer()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
