"""A real HDFS on loopback: a name node and a data node in one JVM, from Maven Central, on top of Spark's Hadoop."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import pyspark
from benchmarks.peers.jars import jars
from benchmarks.peers.java import java_executable, open_module_flags
from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]

_GATEWAY: Final = "py4j.GatewayServer"
_STOP_S_MAX: Final = 20.0


class HdfsCluster:
    """``uri`` is ``hdfs://127.0.0.1:port``, ``web`` the URL of WebHDFS. It has no permissions. ``close`` ends it.

    ``directory``, which is made, gets its data and ``hdfs.log``. ``class_path``: a Hadoop client's, with settings.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        settings = _settings(directory)
        (directory / "conf").mkdir()
        for name in ("core-site.xml", "hdfs-site.xml"):
            (directory / "conf" / name).write_text(_xml(settings))
        (directory / "conf" / "log4j2.properties").write_text(
            "appender.c.type = Console\nappender.c.name = c\nappender.c.target = SYSTEM_ERR\n"
            "appender.c.layout.type = PatternLayout\nappender.c.layout.pattern = %p %c{1}: %m%n%ex\n"
            "rootLogger.level = warn\nrootLogger.appenderRef.c.ref = c\n"
        )
        spark = Path(pyspark.__file__).parent / "jars"
        class_path = [directory / "conf", *jars("hdfs"), spark / "*"]
        # Of a client; who starts a JVM by itself knows no patterns.
        self.class_path = [directory / "conf", *sorted(spark.glob("*.jar"))]
        command = [java_executable(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *open_module_flags()]
        command += ["-cp", os.pathsep.join(map(str, class_path)), _GATEWAY, "0"]
        with (directory / "hdfs.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            assert self._process.stdout is not None
            port = self._process.stdout.readline().strip()
            assert port.isdigit(), (directory / "hdfs.log").read_text()[-4_000:]
            parameters = GatewayParameters(port=int(port), enable_memory_management=False)
            gateway = JavaGateway(gateway_parameters=parameters)
            self._start(gateway)
            gateway.close()
        except BaseException:
            self.close()
            raise

    def _start(self, gateway: Any) -> None:
        hadoop = gateway.jvm.org.apache.hadoop
        # Formatting and serving in one process register the same metrics.
        hadoop.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(True)
        conf = hadoop.hdfs.HdfsConfiguration()
        none = gateway.new_array(gateway.jvm.java.lang.String, 0)
        hadoop.hdfs.server.namenode.NameNode.format(conf)
        names = hadoop.hdfs.server.namenode.NameNode.createNameNode(none, conf)
        port = names.getNameNodeAddress().getPort()
        conf.set("fs.defaultFS", f"hdfs://127.0.0.1:{port}")
        conf.set("dfs.namenode.rpc-address", f"127.0.0.1:{port}")
        data = hadoop.hdfs.server.datanode.DataNode.createDataNode(none, conf)
        self.uri = f"hdfs://127.0.0.1:{port}"
        self.web = f"http://127.0.0.1:{names.getHttpAddress().getPort()}"
        # A data node that the name node knows is where the first file goes.
        while not data.isDatanodeFullyStarted():
            time.sleep(0.05)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _settings(directory: Path) -> dict[str, str]:
    local = "127.0.0.1:0"
    return {
        "fs.defaultFS": "hdfs://127.0.0.1:0",
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.name.dir": (directory / "name").as_uri(),
        "dfs.datanode.data.dir": (directory / "data").as_uri(),
        "dfs.namenode.rpc-address": local,
        "dfs.namenode.http-address": local,
        "dfs.datanode.address": local,
        "dfs.datanode.ipc.address": local,
        "dfs.datanode.http.address": local,
        "dfs.datanode.hostname": "127.0.0.1",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.fs-limits.min-block-size": "0",
    }


def _xml(settings: dict[str, str]) -> str:
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    return f"<configuration>{properties}</configuration>\n"
