"""Jars of Maven Central, pinned by ``scripts/locks/jars.toml``: fetched when they are first needed, then kept.

``python -m benchmarks.peers.jars [NAME …]`` fetches the sets of these names beforehand, or all but the largest. A
coordinate that is no jar's has a fourth part, how the file's name ends.

The Ivy that comes with Spark fetches them, as it does for ``spark.jars.packages``. They are kept outside the checkout,
below ``LAKEMARK_JARS`` or ``~/.cache/lakemark/jars``, because some are very large: all checkouts share them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.peers.java import java_executable

LOCK: Final = Path(__file__).resolve().parents[2] / "scripts" / "locks" / "jars.toml"
LARGEST: Final = frozenset({"trino"})
"""Sets that are fetched only by name."""
_FETCH_S_MAX: Final = 1_200.0


class JarsError(RuntimeError):
    """Jars could not be fetched, or are not those of the lock file. The message has Ivy's output."""


def jars(name: str) -> list[Path]:
    """The jars of a set of the lock file, in its order. Raises JarsError."""
    wanted: dict[str, str] = tomllib.loads(LOCK.read_text())[name]
    places = {coordinate: _place(coordinate, digest) for coordinate, digest in wanted.items()}
    if not all(place.exists() for place in places.values()):
        cache = _cache()
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            missing = {one: wanted[one] for one, place in places.items() if not place.exists()}
            if missing:
                _fetch(missing, cache)
    return list(places.values())


def _cache() -> Path:
    chosen = os.environ.get("LAKEMARK_JARS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "lakemark" / "jars"


def _place(coordinate: str, digest: str) -> Path:
    """The directory is named by the content, so a jar that is there is the right one."""
    _, artifact, version, ending = _parts(coordinate)
    return _cache() / digest[:16] / f"{artifact}-{version}.{ending}"


def _parts(coordinate: str) -> tuple[str, str, str, str]:
    group, artifact, version, *ending = coordinate.split(":")
    return group, artifact, version, ending[0] if ending else "jar"


def _fetch(wanted: Mapping[str, str], cache: Path) -> None:
    print(f"fetching {', '.join(wanted)}", file=sys.stderr, flush=True)
    import pyspark

    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    with tempfile.TemporaryDirectory(dir=cache) as name:
        work = Path(name)
        (work / "ivy.xml").write_text(_module(wanted))
        command = [java_executable(), "-jar", str(ivy), "-ivy", str(work / "ivy.xml"), "-confs", "default"]
        command += ["-cache", str(work / "cache"), "-cachepath", str(work / "paths")]
        finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_S_MAX)
        if finished.returncode:
            raise JarsError(f"{', '.join(wanted)} cannot be fetched:\n{finished.stdout[-4_000:]}{finished.stderr}")
        fetched = {path.name: path for path in map(Path, (work / "paths").read_text().strip().split(os.pathsep))}
        for coordinate, digest in wanted.items():
            place = _place(coordinate, digest)
            jar = fetched[place.name]
            with jar.open("rb") as content:
                got = hashlib.file_digest(content, "sha256").hexdigest()
            if got != digest:
                raise JarsError(f"{coordinate} has SHA-256 {got}, and {LOCK.name} has {digest}")
            place.parent.mkdir(exist_ok=True)
            jar.rename(place)


def _module(wanted: Mapping[str, str]) -> str:
    """An Ivy module that needs exactly these jars, and nothing that they need."""
    lines = [
        f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false" conf="default->master">'
        f'<artifact name="{artifact}" type="{ending}" ext="{ending}"/></dependency>'
        for group, artifact, version, ending in map(_parts, wanted)
    ]
    return (
        '<ivy-module version="2.0"><info organisation="lakemark" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def main() -> None:
    for name in sys.argv[1:] or tomllib.loads(LOCK.read_text()).keys() - LARGEST:
        jars(name)


if __name__ == "__main__":
    try:
        main()
    except JarsError as error:
        sys.exit(str(error))
