"""A real broker of Kafka on loopback: one small JVM that is broker and controller (KRaft), on free ports."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.peers.jars import jars
from benchmarks.peers.java import java_executable

START_S_MAX: Final = 60.0
_FLAGS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class KafkaBroker:
    """``start`` takes some seconds. After ``kill`` or ``stop`` it can be started again, with what it had, at the same
    address."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="lakemark-kafka-"))
        self.port, controller = _free_ports(2)
        data = self._directory / "data"
        data.mkdir()
        # What "kafka-storage format" writes, without a JVM for it.
        (data / "meta.properties").write_text("version=1\ncluster.id=bGFrZW1hcmstdGVzdC0wMQ\nnode.id=1\n")
        self._settings = self._directory / "server.properties"
        self._settings.write_text(
            "\n".join(
                [
                    "process.roles=broker,controller",
                    "node.id=1",
                    f"controller.quorum.voters=1@127.0.0.1:{controller}",
                    f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
                    f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
                    "controller.listener.names=CONTROLLER",
                    f"log.dirs={data}",
                    "auto.create.topics.enable=false",
                    "offsets.topic.replication.factor=1",
                    "offsets.topic.num.partitions=1",
                    "transaction.state.log.replication.factor=1",
                    "transaction.state.log.min.isr=1",
                    "group.initial.rebalance.delay.ms=0",
                    "broker.session.timeout.ms=3000",
                    "broker.heartbeat.interval.ms=500",
                ]
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it listens."""
        path = os.pathsep.join(map(str, jars("kafka")))
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [java_executable(), *_FLAGS, "-cp", path, "kafka.Kafka", str(self._settings)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
            )
        until_s = time.monotonic() + START_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self._process.poll() is None, (self._directory / "log").read_text()
                assert time.monotonic() < until_s, "the broker did not start"
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports
