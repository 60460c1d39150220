"""Brokers of Kafka on loopback, and a reader of topics.

``KafkaBroker`` is a real one: one small JVM that is broker and controller (KRaft). ``MockKafka`` is the one that
librdkafka has for tests: it speaks the protocol over sockets, is there at once, and makes topics when they are named.
"""

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
from typing import Any, Final

from benchmarks.peers.jars import jars
from benchmarks.peers.java import java_executable
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S: Final = 60.0
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

    def make_topic(self, name: str, partitions: int = 3, **settings: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        made = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
        made[name].result(WAIT_S)

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


class MockKafka:
    """Ends with ``kill`` and cannot be started again."""

    def __init__(self) -> None:
        # The client that has the brokers within it; nothing is produced by it.
        self._host: Any = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._host.list_topics(timeout=WAIT_S).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def make_topic(self, name: str) -> None:
        self._host.list_topics(name, timeout=WAIT_S)

    def kill(self) -> None:
        self._host = None


class TopicReader:
    """Reads a topic from its beginning, and drops repeats as docs/sinks.md says."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False})
        partitions = self._consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        self._last: dict[bytes, tuple[int, int]] = {}
        self.partitions: dict[bytes, set[int]] = {}
        self.repeats = 0

    def read(self, count: int) -> list[Any]:
        """So many messages that were not seen before."""
        new: list[Any] = []
        until_s = time.monotonic() + WAIT_S
        while len(new) < count:
            assert time.monotonic() < until_s, f"{len(new)} of {count} messages arrived"
            message = self._consumer.poll(0.2)
            if message is None or message.error():
                continue
            key, headers = message.key(), dict(message.headers())
            self.partitions.setdefault(key, set()).add(message.partition())
            place = int(headers["lakemark-epoch"]), int(headers["lakemark-offset"])
            if "lakemark-resent" not in headers:
                if place <= self._last.get(key, (0, 0)):
                    self.repeats += 1
                    continue
                self._last[key] = place
            new.append(message)
        return new

    def close(self) -> None:
        self._consumer.close()


def _free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports
