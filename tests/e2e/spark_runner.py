"""Plain Spark in a child process, driven by SQL statements and small Python snippets.

A JVM takes many seconds to start, so tests share one `SparkProcess` per Spark version and metastore.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from benchmarks.peers.java import java_home

from tests.e2e.spark_values import from_json

REPOSITORY = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("spark_child.py")
START_TIMEOUT_S = 180.0
STATEMENT_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
LOG_TAIL_BYTES = 4_000

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For a few rows, it takes longer to compile a query than to interpret it."""
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own settings, by which it compiles queries: for benchmarks."""


_OPTIONS = (
    # The statements of tests are over before the optimizing compiler, or a check of Spark's own classes, has paid for
    # itself.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    # The 48 MiB of one compiler are full after some hundred statements: what is thrown out is compiled again.
    "-XX:ReservedCodeCacheSize=240m",
)


class SparkFailedError(AssertionError):
    """The Spark process died, or did not answer in time; the message carries the end of its log."""


class SparkStatementError(Exception):
    """Spark refused or failed a statement.

    `kind` is the Python class of the error (as `AnalysisException`), `condition` Spark's name of it (as
    `TABLE_OR_VIEW_NOT_FOUND`) or None, `message` the whole text.
    """

    def __init__(self, kind: str, condition: str | None, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.condition = condition
        self.message = message


class SparkProcess:
    """One SparkSession (`local[2]`) in a child process, on the metastore at `metastore_uri`.

    `python` is the interpreter of an environment with pyspark. `work_dir` (made if absent) gets the warehouse
    `warehouse`, Derby's and Spark's scratch files, and `spark.log`. `settings` are added to Spark's configuration,
    `variables` to its environment. `start_timeout_s`: for how long it may take to start.
    The session's time zone is UTC. Not thread-safe: one statement at a time.
    """

    def __init__(
        self,
        python: Path,
        metastore_uri: str,
        work_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        work_dir.mkdir(parents=True, exist_ok=True)
        self.warehouse = work_dir / "warehouse"
        self.log = work_dir / "spark.log"
        self._replies: queue.Queue[str | None] = queue.Queue()
        configuration = _configuration(python, metastore_uri, work_dir) | dict(settings or {})
        with self.log.open("ab") as sink:
            self._process = subprocess.Popen(
                [str(python), str(CHILD), json.dumps(configuration)],
                cwd=work_dir,
                env=_environment(python, work_dir) | dict(variables or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                start_new_session=True,  # so that the JVM can be ended with its parent
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        threading.Thread(target=self._read_replies, args=(self._process.stdout,), daemon=True).start()
        try:
            self.version: str = self._next_reply("the start", start_timeout_s)["value"]
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether Spark still runs and can be asked."""
        return self._process.poll() is None and not self._requests.closed

    def sql(self, statement: str, *, timeout_s: float = STATEMENT_TIMEOUT_S) -> list[tuple[Any, ...]]:
        """The rows of one SQL statement, as tuples of Python values in the order that Spark gives.

        Structs and arrays inside a row are lists. Raises `SparkStatementError` if Spark refuses it.
        """
        return [tuple(row) for row in self._ask({"sql": statement}, statement, timeout_s)]

    def python(self, code: str, *, timeout_s: float = STATEMENT_TIMEOUT_S) -> Any:
        """Run a snippet that sees `spark`; what it assigns to `result` is returned. Its names stay for later calls.

        Raises `SparkStatementError` with the Python class of what it raised.
        """
        return self._ask({"python": code}, code, timeout_s)

    def close(self) -> None:
        """Stop Spark and its JVM; safe to call twice."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, request: dict[str, str], what: str, timeout_s: float) -> Any:
        if not self.alive:
            raise SparkFailedError(f"Spark is not running (code {self._process.returncode}); its log:\n{self._tail()}")
        # If the child ends just now, the end of its replies tells.
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        reply = self._next_reply(what, timeout_s)
        if "error" in reply:
            raise SparkStatementError(reply["error"], reply["condition"], reply["message"])
        return from_json(reply["value"])

    def _next_reply(self, what: str, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            # A late answer would be taken for that of the next statement: this process is of no more use.
            os.killpg(self._process.pid, signal.SIGKILL)
            message = f"no answer within {timeout_s:.0f} s to {what!r}; Spark was ended"
            raise SparkFailedError(f"{message}; its log:\n{self._tail()}") from None
        if line is None:
            self.close()
            raise SparkFailedError(f"Spark ended during {what!r}; its log:\n{self._tail()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _read_replies(self, replies: IO[str]) -> None:
        with replies:
            for line in replies:
                self._replies.put(line)
        self._replies.put(None)

    def _tail(self) -> str:
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


def archive_of(python: Path) -> Path:
    """Where the classes of this environment's Spark are archived, if `tests.e2e.class_archives` has been run."""
    return python.parent.parent / "spark-classes.jsa"


def java_options(python: Path) -> str:
    """Options with which a JVM begins quickly; `python` is the interpreter of the environment with its Spark."""
    options = " ".join(_OPTIONS)
    archive = archive_of(python)
    return f"{options} -Xlog:disable -XX:SharedArchiveFile={archive}" if archive.exists() else options


def as_users_run_it(work_dir: Path) -> dict[str, str]:
    """Settings for benchmarks: queries are compiled, and so is the JVM's code, as without any settings."""
    return COMPILED | {"spark.driver.extraJavaOptions": directory_options(work_dir)}


def directory_options(work_dir: Path) -> str:
    """Options that keep a JVM's files in `work_dir`."""
    return f"-Dderby.system.home={work_dir} -Djava.io.tmpdir={work_dir / 'tmp'}"


def _configuration(python: Path, metastore_uri: str, work_dir: Path) -> dict[str, str]:
    return {
        "spark.master": "local[2]",
        "spark.hive.metastore.uris": metastore_uri,
        "spark.sql.warehouse.dir": (work_dir / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{java_options(python)} {directory_options(work_dir)}",
        "spark.local.dir": str(work_dir / "tmp"),
        "spark.hadoop.hive.exec.scratchdir": str(work_dir / "scratch"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.ui.explainMode": "simple",  # for a page that nobody looks at
        **INTERPRETED,
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
    }


def _environment(python: Path, work_dir: Path) -> dict[str, str]:
    (work_dir / "tmp").mkdir(exist_ok=True)
    # The settings of the caller's Spark or Python must not reach the other version's.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    chosen = {"PYSPARK_PYTHON": str(python), "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"}
    home = java_home()
    if home is not None:
        chosen["JAVA_HOME"] = str(home)
    return kept | chosen


def interpreter(spark_version: str) -> Path:
    """The Python that has this Spark: `"4.3"` is the one that runs the tests, `"3.5"` that of `.venv-spark35`.

    Raises `FileNotFoundError` with what to do if that environment is not set up.
    """
    if spark_version == "4.3":
        return Path(sys.executable)
    python = REPOSITORY / ".venv-spark35" / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError("no environment with Spark 3.5: run scripts/setup --spark35")
    return python
