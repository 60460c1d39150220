"""A Java process with Hive's classes, called from Python."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyspark
from benchmarks.peers.java import java_executable, open_module_flags
from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]

SPARK_JARS = Path(pyspark.__file__).parent / "jars"


@contextmanager
def hive_classes(class_path: Sequence[Path], log: Path, flags: Sequence[str] = ()) -> Iterator[HiveJvm]:
    """The classes of these jars; ``folder/*`` are those of a folder. ``log``: a file for what the process says.

    ``flags``: further ones for Java.
    """
    bridge = next(SPARK_JARS.glob("py4j-*.jar"))
    command = [
        java_executable(),
        "-Xmx512m",
        *open_module_flags(),
        *flags,
        "-cp",
        os.pathsep.join(map(str, [bridge, *class_path])),
        "py4j.GatewayServer",
        "0",
    ]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sink, start_new_session=True
        )
    try:
        assert process.stdout is not None
        port = next((line for line in process.stdout if line.strip().isdigit()), b"")
        assert port, log.read_text()
        # Whatever else it prints must not fill the pipe.
        drain = threading.Thread(target=_drop, args=(process.stdout,), daemon=True)
        drain.start()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port)))
        yield HiveJvm(gateway)
        gateway.shutdown()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _drop(output: IO[bytes]) -> None:
    with output:
        for _ in output:
            pass


class HiveJvm:
    """Java objects are of type Any here. ``metastore`` is the package org.apache.hadoop.hive.metastore."""

    def __init__(self, gateway: Any) -> None:
        self._jvm = gateway.jvm
        thrift = gateway.jvm.org.apache.thrift
        self._json = thrift.TSerializer(thrift.protocol.TJSONProtocol.Factory())
        self.hive = gateway.jvm.org.apache.hadoop.hive
        self.hadoop = gateway.jvm.org.apache.hadoop
        self.java = gateway.jvm.java
        self.metastore = self.hive.metastore

    def list_of(self, values: Sequence[object]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def json_of(self, made: Any) -> str:
        """A Thrift object of Java as text of Thrift's JSON protocol."""
        text: str = self._json.toString(made)
        return text

    def client(self, configuration: Any, port: int, settings: Mapping[str, str] | None = None) -> Any:
        """Hive's own client of the Metastore at the port."""
        configuration.set("hive.metastore.uris", f"thrift://127.0.0.1:{port}")
        for name, value in (settings or {}).items():
            configuration.set(name, value)
        return self.metastore.HiveMetaStoreClient(configuration)
