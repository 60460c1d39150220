"""The wheel and the sdist: built, checked, and installed into clean environments of each Python that is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
UV = ROOT / ".venv-tools" / "bin" / "uv"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# What a client brings, itself included: one more is one more that can disagree with what a user has.
CLIENT_PACKAGES_MAX = 18

# The tuple layer of FoundationDB comes as source alone, and is pure Python.
WHEELS_ONLY = ("--only-binary", ":all:", "--no-binary", "foundationdb")

CLIENT = """
import sys
import pyarrow
import lakemark, lakemark.errors, lakemark.evolution, lakemark.expressions, lakemark.parquet, lakemark.types

with lakemark.connect(sys.argv[1]) as client:
    client.databases.create("d")
    client.tables.create("d.t", "id bigint, name string")
    with client.begin("d.t") as writer:
        writer.write(pyarrow.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
        writer.commit()
    print(client.read("d.t", "id > 1").num_rows, client.plan("d.t", "id > 5").summary.files_planned)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with a wheel and an sdist, which ``scripts/packages`` has made and checked."""
    made = tmp_path_factory.mktemp("dist")
    done = subprocess.run([ROOT / "scripts" / "packages", made], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An environment of this Python with nothing in it; its ``python``."""
    path = os.pathsep.join([*map(str, Path("~/.pyenv/versions").expanduser().glob("*/bin")), os.environ["PATH"]])
    base = shutil.which(f"python{request.param}", path=path)
    if base is None or subprocess.run([base, "-V"], check=False, capture_output=True).returncode:
        pytest.skip(f"there is no Python {request.param} on this machine")
    uv("venv", "--python", base, str(tmp_path / "venv"))
    return str(tmp_path / "venv" / "bin" / "python")


def uv(*words: str) -> str:
    done = subprocess.run([UV, *words, "--no-config"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wheel(packages: Path) -> Path:
    (made,) = packages.glob("*.whl")
    return made


def freeze(python: str) -> dict[str, str]:
    """Name and version of what is installed."""
    lines = uv("pip", "list", "--python", python, "--format", "freeze").splitlines()
    return dict(line.split("==") for line in lines)


@contextmanager
def service(program: Path, directory: Path) -> Iterator[str]:
    """``lakemark serve`` as a user starts it; gives the address for gRPC."""
    ports = ("--grpc-port", "0", "--hms-port", "0")
    places = ("--store", f"sqlite:///{directory}/s.db", "--warehouse", str(directory / "warehouse"))
    with (directory / "service.log").open("w") as log:
        running = subprocess.Popen([program, "serve", *ports, *places], text=True, stdout=subprocess.PIPE, stderr=log)
    try:
        assert running.stdout is not None
        ready = running.stdout.readline()
        assert ready, (directory / "service.log").read_text()
        yield ready.split("grpc=")[1].split()[0]
    finally:
        running.terminate()
        running.communicate(timeout=60)
    assert running.returncode == 0


def test_a_client_is_small_and_reads_and_writes(packages: Path, python: str, tmp_path: Path) -> None:
    uv("pip", "install", "--python", python, str(wheel(packages)))

    installed = freeze(python)
    assert len(installed) <= CLIENT_PACKAGES_MAX, sorted(installed)
    assert not {"numpy", "pyspark", "sqlalchemy", "thrift"} & set(installed)
    with service(ROOT / ".venv" / "bin" / "lakemark", tmp_path) as address:
        read = subprocess.run([python, "-c", CLIENT, address], check=False, capture_output=True, text=True)
        assert read.stdout == "2 0\n", read.stderr
        program = Path(python).with_name("lakemark")
        told = subprocess.run(
            [program, "--server", address, "plan", "d.t"], check=False, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr
    refused = subprocess.run([program, "serve"], check=False, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "pip install 'lakemark[server]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_server_serves(packages: Path, python: str, tmp_path: Path) -> None:
    uv("pip", "install", "--python", python, f"lakemark[server,postgres] @ file://{wheel(packages)}")

    with service(Path(python).with_name("lakemark"), tmp_path) as address:
        read = subprocess.run([python, "-c", CLIENT, address], check=False, capture_output=True, text=True)
    assert read.stdout == "2 0\n", read.stderr


def test_the_sdist_installs(packages: Path, tmp_path: Path) -> None:
    """It is built with the tools that pyproject.toml names, which pip brings."""
    (sdist,) = packages.glob("*.tar.gz")
    uv("venv", "--python", str(ROOT / ".venv" / "bin" / "python"), str(tmp_path / "venv"))
    uv("pip", "install", "--python", str(tmp_path / "venv"), str(sdist))

    program = tmp_path / "venv" / "bin" / "lakemark"
    told = subprocess.run([program, "version"], check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "0." in told.stdout


@pytest.mark.parametrize("installed", ["3.5.8", "4.0.1"])
def test_the_extra_spark_keeps_the_spark_that_is_there(packages: Path, tmp_path: Path, installed: str) -> None:
    """Asked of the resolver, since a Spark takes long to install."""
    here = tmp_path / "installed.txt"
    here.write_text(f"pyspark=={installed}\n")
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"lakemark[spark] @ file://{wheel(packages)}\n")

    chosen = uv("pip", "compile", "--python-version", "3.11", "--constraints", str(here), str(wanted))

    assert f"pyspark=={installed}" in chosen


@pytest.mark.parametrize("version", PYTHONS)
def test_every_python_finds_wheels(packages: Path, tmp_path: Path, version: str) -> None:
    """Nothing of a client or a server has to be compiled, also on a Python that is not on this machine."""
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"lakemark[server,postgres,hdfs,kafka] @ file://{wheel(packages)}\n")

    uv("pip", "compile", "--python-version", version, *WHEELS_ONLY, str(wanted))
