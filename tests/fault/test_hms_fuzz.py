"""Recorded messages of real clients, changed at random, against a whole service.

The service never ends, answers other clients all the while, leaks no connection and no memory, and its objects are as
they were. A hundred thousand messages are slow (``scripts/test-slow``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark_hms.wire import codec
from tests.hms_mutations import Mutations, is_whole
from tests.hms_recording import messages
from tests.integration.hms_objects import database, partition, table
from tests.lengths import long, seed

SECONDS = 60
CLIENTS = 4
MEMORY_GROWTH_MAX = 400 << 20
FILES_MORE_MAX = 100  # each thread that works opens the files of the store once
KEPT = "fuzz_kept"


class Fuzzed:
    """A service in a process of its own, with a database that no recorded message names."""

    def __init__(self, directory: Path) -> None:
        self.store = f"sqlite:///{directory}/lakemark.db"
        command = [sys.executable, "-m", "lakemark", "serve", "--store", self.store]
        command += ["--warehouse", str(directory / "warehouse"), "--grpc-port", "0", "--hms-port", "0"]
        self._log = directory / "service.log"
        own = os.environ | {"LAKEMARK_CLIENT_CATALOGS": "true", "LAKEMARK_CORES": "all"}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=own)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert "hms=" in ready, self._log.read_text()
        self.port = int(ready.split("hms=")[1].split()[0].rpartition(":")[2])

    @contextlib.contextmanager
    def client(self) -> Iterator[ThriftHiveMetastore.Client]:
        transport = TBufferedTransport(TSocket("127.0.0.1", self.port))
        transport.open()
        yield ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport))
        transport.close()

    def make_known(self) -> None:
        with self.client() as client:
            client.create_database(database(KEPT))
            for number in range(3):
                name = f"known{number}"
                client.create_table(table(name, db=KEPT, keys="dt string", parameters={"k": "v" * number}))
                client.add_partitions([partition([str(day)], of=name, db=KEPT) for day in range(5)])

    def known(self) -> str:
        with self.client() as client:
            tables = [client.get_table(KEPT, name) for name in sorted(client.get_all_tables(KEPT))]
            parts = [client.get_partitions(KEPT, one.tableName, -1) for one in tables]
            return repr((client.get_database(KEPT), tables, parts))

    def descriptors(self, kind: str = "") -> int:
        """How many are open; ``kind`` "socket": connections and ports."""
        count = 0
        for one in os.scandir(f"/proc/{self.process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                count += os.readlink(one.path).startswith(kind)
        return count

    @property
    def memory(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def end(self) -> str:
        """Stops the service, and returns its log."""
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0
        return self._log.read_text()


@pytest.fixture
def fuzzed(tmp_path: Path) -> Iterator[Fuzzed]:
    service = Fuzzed(tmp_path)
    yield service
    if service.process.poll() is None:
        service.process.kill()
        service.process.wait()
    assert service.process.stdout is not None
    service.process.stdout.close()


class Sender:
    """One client, which opens a new connection whenever the service has closed its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sock: socket.socket | None = None
        self.answered = self.closed = 0

    def send(self, message: bytes) -> None:
        sock = self._sock or socket.create_connection(("127.0.0.1", self._port), timeout=SECONDS)
        self._sock = sock
        whole = is_whole(message)
        header = None
        with contextlib.suppress(codec.WireError):
            header = codec.read_header(message)
        try:
            sock.sendall(message)
            if not whole or header is None or header.kind != codec.CALL or _goes_on(message, header):
                self._leave(sock)
            elif self._answer(sock):
                self.answered += 1
                return
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.closed += 1
        self.close()

    @staticmethod
    def _leave(sock: socket.socket) -> None:
        """Says no more, and reads until the service has closed."""
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass

    @staticmethod
    def _answer(sock: socket.socket) -> bool:
        """Reads one answer. False if the connection is closed behind it or instead of it."""
        data = b""
        while chunk := sock.recv(1 << 16):
            data += chunk
            header = codec.read_header(data)
            if header is None:
                continue
            try:
                codec.end_of_struct(data, header.body)
            except codec.TruncatedError:
                continue
            # A message that can never be understood is told so, and the connection is closed.
            return header.kind == codec.REPLY
        return False

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def _goes_on(message: bytes, header: codec.Header) -> bool:
    """Whether other bytes follow the message, which are the beginning of another one."""
    try:
        return codec.end_of_struct(message, header.body) != len(message)
    except codec.WireError:
        return False


def _run(port: int, seed: int, count: int) -> tuple[int, int]:
    recorded = [one for one in messages() if not _is_about_all(one)]
    mutations, sender = Mutations(recorded, seed), Sender(port)
    for number in range(count):
        message = mutations.next()
        try:
            sender.send(message)
        except (OSError, codec.WireError, struct.error) as error:
            raise AssertionError(f"message {number} of seed {seed}: {message!r}") from error
    sender.close()
    return sender.answered, sender.closed


def _is_about_all(message: bytes) -> bool:
    """Whether a legal call may take what this test compares away."""
    header = codec.read_header(message)
    return header is not None and header.name in ("drop_catalog", "alter_catalog")


def _fuzz(fuzzed: Fuzzed, seed: int, count: int) -> None:
    fuzzed.make_known()
    before = fuzzed.known()
    _run(fuzzed.port, seed, min(2_000, count // 4))  # what is made once is made
    sockets, descriptors, memory = fuzzed.descriptors("socket"), fuzzed.descriptors(), fuzzed.memory
    with ThreadPoolExecutor(CLIENTS) as pool:
        runs = [pool.submit(_run, fuzzed.port, seed + 1 + n, count // CLIENTS) for n in range(CLIENTS)]
        while not all(run.done() for run in runs):
            with fuzzed.client() as client:
                assert client.getName() == "lakemark"
            assert fuzzed.process.poll() is None
            time.sleep(0.2)
        counted = [run.result() for run in runs]
    answered, closed = (sum(numbers) for numbers in zip(*counted, strict=True))
    print(f"{answered} answered, {closed} connections closed; memory {memory >> 20} to {fuzzed.memory >> 20} MiB")
    assert answered > count // 4
    assert fuzzed.known() == before
    until = time.monotonic() + SECONDS
    while fuzzed.descriptors("socket") > sockets and time.monotonic() < until:
        time.sleep(0.1)
    assert fuzzed.descriptors("socket") <= sockets
    assert fuzzed.descriptors() <= descriptors + FILES_MORE_MAX
    assert fuzzed.memory - memory < MEMORY_GROWTH_MAX
    said = fuzzed.end()
    assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:4_000]
    verified = subprocess.run(
        [sys.executable, "-m", "lakemark", "verify", "--store", fuzzed.store],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_changed_messages_harm_nobody(fuzzed: Fuzzed) -> None:
    _fuzz(fuzzed, 1, 6_000)


@pytest.mark.slow
@pytest.mark.timeout(long(1_800))
def test_many_changed_messages_harm_nobody(fuzzed: Fuzzed) -> None:
    _fuzz(fuzzed, seed(1000), long(100_000))
