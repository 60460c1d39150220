"""Runs Hive 4.0.1's own Metastore client tests against a service on a temporary store.

The tests themselves are no part of this repository: they are looked for in ../shared/conformance beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
RUNNER: Final = ROOT.parent / "shared" / "conformance" / "run"
FAIL_ON_HIVE: Final = ROOT / "scripts" / "conformance-fails-on-hive.txt"
STARTED_WITHIN_S: Final = 60.0

SETTINGS: Final = {
    "LAKEMARK_CLIENT_CATALOGS": "true",  # the tests make catalogs of their own
    "LAKEMARK_HMS_PARTITIONS_MAX": "100",  # what the tests take for the server's limit
}


class UnusableError(Exception):
    """The tests cannot be run here."""


def summary(results: str, fail_on_hive: set[tuple[str, str]]) -> dict[str, int]:
    """Counts of the lines of a result file: class, test, pass or fail or skip, and the failure.

    ``failed`` has not those that fail on Hive, too; they are counted by themselves.
    """
    counts: Counter[str] = Counter()
    for line in results.splitlines():
        kind, test, state = line.split("\t")[:3]
        known = state == "fail" and (kind, test) in fail_on_hive
        counts["fail_on_hive_too" if known else state] += 1
    return {
        "passed": counts["pass"],
        "failed": counts["fail"],
        "skipped": counts["skip"],
        "fail_on_hive_too": counts["fail_on_hive_too"],
    }


def known_failures(text: str) -> set[tuple[str, str]]:
    """The cases in the list of those that fail on Hive."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {(words[0], words[1]) for words in lines}


@contextlib.contextmanager
def _service(directory: Path) -> Iterator[int]:
    """A service below the directory; yields the port of its Metastore protocol."""
    command = [
        str(Path(sys.executable).parent / "lakemark"), "serve", "--store", f"sqlite:///{directory}/store.db",
        "--warehouse", str(directory / "warehouse"), "--grpc-port", "0", "--hms-port", "0",
    ]  # fmt: skip
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=os.environ | SETTINGS, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""  # when it is ready, or at its end
        port = next((int(word.rpartition(":")[2]) for word in line.split() if "thrift://" in word), None)
        if port is None:
            raise UnusableError(f"the service did not start: {(directory / 'log').read_text()[-2000:]}")
        yield port
    finally:
        process.terminate()
        process.wait(STARTED_WITHIN_S)


def run(classes: Sequence[str]) -> tuple[str, str]:
    """The result file and what the tests print. Raises UnusableError."""
    if not RUNNER.is_file():
        raise UnusableError(f"there are no conformance tests: {RUNNER} is missing")
    with tempfile.TemporaryDirectory(prefix="lakemark-conformance-") as temporary:
        directory = Path(temporary)
        results = directory / "results.tsv"
        with _service(directory) as port:
            environment = os.environ | {"WAREHOUSE": f"file:{directory}/warehouse", "OUT": str(results)}
            done = subprocess.run(
                ["bash", str(RUNNER), "127.0.0.1", str(port), *classes],
                env=environment, stdout=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        if done.returncode not in (0, 1):
            raise UnusableError(f"the tests could not be run: {done.stdout}")
        return results.read_text(), done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/conformance",
        description="Hive 4.0.1's own Metastore client tests, against a service of their own. They empty the trash of "
        "Hadoop in the home directory (.Trash/Current).",
    )
    parser.add_argument("classes", nargs="*", metavar="TestClass", help="all ten if none is named")
    parser.add_argument("--json", action="store_true", help="the last line is one object with the counts")
    arguments = parser.parse_args()
    try:
        results, printed = run(arguments.classes)
    except UnusableError as error:
        print(f"scripts/conformance: {error}", file=sys.stderr)
        return 2
    known = known_failures(FAIL_ON_HIVE.read_text())
    counts = summary(results, known)
    shown = sys.stderr if arguments.json else sys.stdout
    print(printed, file=shown)
    for line in results.splitlines():
        kind, test, state, *why = line.split("\t")
        if state == "fail":
            also = " (fails on Hive, too)" if (kind, test) in known else ""
            print(f"{kind}.{test}{also}: {' '.join(why)}", file=shown)
    print(json.dumps(counts) if arguments.json else counts)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
