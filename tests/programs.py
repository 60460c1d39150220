"""What slow tests need and no registry has ready: built from the sources that one has, pinned by ``scripts/locks/``.

``python -m tests.programs`` builds all of it, which takes minutes; tests take only what is built. It is kept outside
the checkout, below ``LAKEMARK_PROGRAMS`` or ``~/.cache/lakemark/programs``: all checkouts share it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.peers.java import java_home

_LOCKS: Final = Path(__file__).resolve().parents[1] / "scripts" / "locks"
_BUILD_S_MAX: Final = 3_600.0
_HDFS_VERSION: Final = "hdfs_3_3"
_HDFS_SOURCES: Final = (
    *("exception.c", "jni_helper.c", "hdfs.c", "jclasses.c"),
    *("os/posix/mutexes.c", "os/posix/thread.c", "os/posix/thread_local_storage.c"),
)


class ProgramMissing(RuntimeError):
    """A program is not built, or cannot be: the message says why."""


def versitygw() -> Path:
    """The program of VersityGW, an S3 server. Raises ProgramMissing."""
    return _place("versitygw", "go.sum") / "versitygw"


def libhdfs() -> Path:
    """The directory of ``libhdfs.so``, as ``ARROW_LIBHDFS_DIR`` names it. Raises ProgramMissing."""
    return _place("libhdfs", "Cargo.toml")


def _place(name: str, lock: str) -> Path:
    place = _directory(name, lock)
    if not place.exists():
        raise ProgramMissing(f"{name} is not built: run `python -m tests.programs`, which tells what it lacks")
    return place


def _directory(name: str, lock: str) -> Path:
    chosen = os.environ.get("LAKEMARK_PROGRAMS")
    cache = Path(chosen) if chosen else Path.home() / ".cache" / "lakemark" / "programs"
    return cache / f"{name}-{hashlib.sha256((_LOCKS / name / lock).read_bytes()).hexdigest()[:16]}"


def _build(name: str, lock: str, make: Callable[[Path, Path], None]) -> None:
    """``make`` gets a directory with the lock files, and an empty one for what it builds."""
    place = _directory(name, lock)
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if place.exists():
            return
        print(f"building {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as work:
            sources, built = Path(work, "sources"), Path(work, "built")
            shutil.copytree(_LOCKS / name, sources)
            built.mkdir()
            make(sources, built)
            built.rename(place)


def _make_versitygw(sources: Path, built: Path) -> None:
    # The toolchain that is here, and not one that it would fetch.
    go = [_tool("go", "Go"), "build", "-mod=readonly", "-o", built / "versitygw"]
    _run(*go, "github.com/versity/versitygw/cmd/versitygw", cwd=sources, GOTOOLCHAIN="local", CGO_ENABLED="0")


def _make_libhdfs(sources: Path, built: Path) -> None:
    home = _home_with_headers()
    (sources / "lib.rs").touch()
    _run(_tool("cargo", "Rust"), "vendor", "vendored", cwd=sources)
    crate = sources / "vendored" / "hdfs-sys"
    wanted = tomllib.loads((sources / "Cargo.toml").read_text())["package"]["metadata"]["sha256"]
    # Cargo has compared what came with this digest, and each file with those in the same place.
    if json.loads((crate / ".cargo-checksum.json").read_text())["package"] != wanted:
        raise ProgramMissing("the crate hdfs-sys is not the one that scripts/locks/libhdfs/Cargo.toml names")
    root = crate / "libhdfs"
    main = root / _HDFS_VERSION
    headers = [home / "include", home / "include/linux", root]
    headers += [main / part for part in (".", "os", "os/posix", "include")]
    _run(
        *(_tool("cc", "a C compiler"), "-shared", "-fPIC", "-O2", "-w", "-fcommon", *(f"-I{each}" for each in headers)),
        *(main / name for name in _HDFS_SOURCES),
        *(f"-L{home / 'lib' / 'server'}", "-ljvm", "-lpthread", "-o", built / "libhdfs.so"),
        cwd=sources,
    )


def _home_with_headers() -> Path:
    """A JDK: a mere runtime lacks the headers of its native interface."""
    compiler = shutil.which("javac")
    homes = [java_home(), Path(os.environ["JAVA_HOME"]) if "JAVA_HOME" in os.environ else None]
    homes += [Path(compiler).resolve().parents[1]] if compiler else []
    for home in homes:
        if home is not None and (home / "include" / "jni.h").exists():
            return home
    raise ProgramMissing("there is no JDK here with include/jni.h: set JAVA_HOME to one")


def _tool(name: str, what: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ProgramMissing(f"it is built with {what}, and `{name}` is not on PATH")
    return path


def _run(*command: str | Path, cwd: Path, **variables: str) -> None:
    finished = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_S_MAX,
    )
    if finished.returncode:
        raise ProgramMissing(f"{Path(command[0]).name} {command[1]} failed:\n{finished.stderr[-2_000:]}")


def main() -> int:
    """The exit code: 1 if something could not be built."""
    failed = 0
    for name, lock, make in (("versitygw", "go.sum", _make_versitygw), ("libhdfs", "Cargo.toml", _make_libhdfs)):
        try:
            _build(name, lock, make)
        except (ProgramMissing, subprocess.TimeoutExpired) as error:
            print(f"{name} cannot be built: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
