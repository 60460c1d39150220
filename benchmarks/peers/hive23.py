"""Hive 2.3's own metastore, from the jars inside pyspark, on an embedded Derby database.

It is the peer of the `hms` benchmark, and the oracle for the answers of a metastore. It keeps everything under one
directory and is a child process of the caller. Hive 2.3 has no setting for its address: it listens on all of them, on a
port that was free a moment before. Start it only where that is acceptable.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark
from hmsclient import HMSClient
from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]

from benchmarks.peers.java import java_executable, open_module_flags

METASTORE_CLASS = "org.apache.hadoop.hive.metastore.HiveMetaStore"
GATEWAY_CLASS = "py4j.GatewayServer"
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 15.0
POLL_INTERVAL_S = 0.1
LOG_TAIL_BYTES = 4_000


class MetastoreStartError(RuntimeError):
    """The peer did not come up; the message carries the end of its log."""


class HiveMetastore:
    """A Hive 2.3 metastore that can be stopped, killed and started again, with what it had and at the same `port`.

    `work_dir` gets the Derby database, the warehouse directory `warehouse`, the configuration and the log
    `metastore.log`; it must be empty or absent, or have been that of a metastore, which goes on then with the
    configuration that it had. `port` 0: any free one. `settings` are added to its configuration, `jars` to its classes.
    """

    def __init__(
        self,
        work_dir: Path,
        *,
        heap: str = "1g",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        jars: Sequence[Path] = (),
    ) -> None:
        self.port = port or _free_port()
        self._work_dir, self._heap, self._settings, self._jars = work_dir, heap, settings or {}, jars
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers. Raises `MetastoreStartError` if it does not within `START_TIMEOUT_S` seconds."""
        log = self._work_dir / "metastore.log"
        if not (self._work_dir / "conf").exists():
            self._work_dir.mkdir(parents=True, exist_ok=True)
            _write_configuration(self._work_dir, self._settings)
            _create_lock_tables(self._work_dir, log)
        self._process = _start_java(
            self._work_dir, log, METASTORE_CLASS, "-p", str(self.port), heap=self._heap, jars=self._jars
        )
        _wait_until_it_answers(self._process, self.port, log)

    def stop(self) -> None:
        """Ends it in order, if it runs."""
        if self._process is not None:
            _stop(self._process)

    def kill(self) -> None:
        """Ends it with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def hive_metastore(
    work_dir: Path,
    *,
    heap: str = "1g",
    port: int = 0,
    settings: Mapping[str, str] | None = None,
    jars: Sequence[Path] = (),
) -> Iterator[int]:
    """Run a `HiveMetastore` and give its Thrift port. It answers when the block starts, and is gone when it ends."""
    metastore = HiveMetastore(work_dir, heap=heap, port=port, settings=settings, jars=jars)
    try:
        metastore.start()
        yield metastore.port
    finally:
        metastore.stop()


@contextmanager
def connect(port: int) -> Iterator[HMSClient]:
    """An open client of the metastore on this machine at `port`."""
    with HMSClient(host="127.0.0.1", port=port) as client:
        yield client


def _settings(work_dir: Path) -> Mapping[str, str]:
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={work_dir}/derby;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        # The default pool, BoneCP, is not among Spark's jars; without a pool every lock call would fail.
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": (work_dir / "warehouse").as_uri(),
        "hive.exec.scratchdir": str(work_dir / "scratch"),
        # The asynchronous logger of Hive 2.3 needs a Disruptor that Spark's jars do not have.
        "hive.async.log.enabled": "false",
        "fs.defaultFS": "file:///",
    }


def _write_configuration(work_dir: Path, settings: Mapping[str, str]) -> None:
    conf = work_dir / "conf"
    conf.mkdir()
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in {**_settings(work_dir), **settings}.items()
    )
    (conf / "hive-site.xml").write_text(f"<configuration>{properties}</configuration>\n")
    (conf / "log4j2.properties").write_text(
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex\n"
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.console.ref = console\n"
    )


def _start_java(
    work_dir: Path,
    log: Path,
    main_class: str,
    *arguments: str,
    heap: str,
    stdout: int | None = None,
    jars: Sequence[Path] = (),
) -> subprocess.Popen[bytes]:
    all_jars = Path(pyspark.__file__).parent / "jars"
    command = [
        java_executable(),
        f"-Xmx{heap}",
        *open_module_flags(),
        f"-Dderby.system.home={work_dir}",
        f"-Djava.io.tmpdir={work_dir}",
        "-cp",
        os.pathsep.join([str(work_dir / "conf"), f"{all_jars}/*", *map(str, jars)]),
        main_class,
        *arguments,
    ]
    with log.open("ab") as sink:
        return subprocess.Popen(
            command,
            cwd=work_dir,
            stdin=subprocess.DEVNULL,
            stdout=sink if stdout is None else stdout,
            stderr=sink,
            start_new_session=True,  # a Ctrl-C at the terminal ends the caller, which then ends this in order
        )


def _create_lock_tables(work_dir: Path, log: Path) -> None:
    """Create the tables of locks and transactions, which DataNucleus does not know.

    Hive makes them with `TxnDbUtil.prepDb` in its own tests only; a short-lived JVM runs just that method.
    """
    process = _start_java(work_dir, log, GATEWAY_CLASS, "0", heap="512m", stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port.isdigit():
            raise MetastoreStartError(f"the JVM that prepares the database did not start:\n{_tail(log)}")
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port)))
        hive = gateway.jvm.org.apache.hadoop.hive
        hive.metastore.txn.TxnDbUtil.prepDb(hive.conf.HiveConf())
        gateway.shutdown()
    finally:
        _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise MetastoreStartError(f"the Hive metastore ended with code {process.returncode}:\n{_tail(log)}")
        if _listens(port):
            with connect(port) as client:
                client.get_all_databases()
            return
        time.sleep(POLL_INTERVAL_S)
    raise MetastoreStartError(f"the Hive metastore did not answer within {START_TIMEOUT_S:.0f} s:\n{_tail(log)}")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _tail(log: Path) -> str:
    return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
