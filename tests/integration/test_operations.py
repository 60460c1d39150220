"""Runs the commands of docs/operations.md and docs/upgrading.md: each must end and print as the document says.

``...`` stands for anything. ``&`` starts a service on free ports; ``kill %1`` ends all that run. A command whose
comment says ``exit 70`` must end with it. Commands run in the order of the document, in one directory.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakemark.cli.app import run
from tests.stores import fdb_url, postgres_url

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
UPGRADE = DOCUMENT.with_name("upgrading.md")
DATABASES = {
    "sqlite": "sqlite:///restored/lakemark.db",
    "postgresql": "postgresql://lakemark@db.example/lakemark",
    "fdb": "fdb:///etc/foundationdb/fdb.cluster",
}
_BLOCK = re.compile(r"<!-- test: (?P<backends>[a-z, ]+) -->\n```console\n(?P<text>.*?)```", re.DOTALL)


@dataclass
class Command:
    line: str
    output: str
    exit_code: int


def commands(backend: str, document: Path = DOCUMENT) -> list[Command]:
    found = []
    for block in _BLOCK.finditer(document.read_text()):
        if backend in block["backends"].split(", "):
            for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                line, _, output = part.partition("\n")
                line, _, comment = line.partition("  # exit ")
                found.append(Command(line, output, int(comment or 0)))
    return found


class Shell:
    """Runs commands in a directory: services as processes, other ``lakemark`` commands in this one, which is faster."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.services: list[subprocess.Popen[str]] = []
        self._patch, self._capfd = monkeypatch, capfd
        monkeypatch.chdir(directory)
        for name in [name for name in os.environ if name.startswith("LAKEMARK_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("LAKEMARK_GRPC_PORT", "0")
        monkeypatch.setenv("LAKEMARK_HMS_PORT", "0")

    def run(self, command: Command) -> str:
        """The output of a command on both streams."""
        line = command.line
        if line == "kill %1":
            self.stop()
            return ""
        if line.endswith(" &"):
            return self.serve(shlex.split(line.removesuffix(" &")))
        self._capfd.readouterr()
        if line.startswith("lakemark "):
            code = run([os.path.expandvars(word) for word in shlex.split(line)[1:]])
        else:
            code = subprocess.run(["bash", "-c", line], check=False).returncode
        output = "".join(self._capfd.readouterr())
        assert code == command.exit_code, f"{line}\n{output}"
        return output

    def serve(self, words: list[str]) -> str:
        assert words[0] == "lakemark"
        command = [sys.executable, "-m", "lakemark", *words[1:]]
        with (self.directory / "service.log").open("a") as log:
            service = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=log)
        self.services.append(service)
        assert service.stdout is not None
        ready = service.stdout.readline()
        assert ready, (self.directory / "service.log").read_text()
        self._patch.setenv("LAKEMARK_SERVER", ready.split("grpc=")[1].split()[0])
        return ready

    def stop(self) -> None:
        for service in self.services:
            service.terminate()
        for service in self.services:
            assert service.stdout is not None
            service.stdout.close()
            assert service.wait(60) == 0
        self.services.clear()


@pytest.fixture
def database(tmp_path: Path, backend: str) -> str:
    """Set up before the shell, which has no access to the environment of the tests."""
    made = {"postgresql": postgres_url, "fdb": fdb_url}
    return made[backend](tmp_path) if backend in made else DATABASES[backend]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    made = Shell(tmp_path, monkeypatch, capfd)
    try:
        yield made
    finally:
        made.stop()


def matches(output: str, expected: str) -> bool:
    pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, output.strip(), flags=re.DOTALL) is not None


@pytest.mark.parametrize("backend", DATABASES)
def test_the_commands_of_the_document(database: str, shell: Shell, backend: str) -> None:
    found = commands(backend)
    assert len(found) > 12
    for command in found:
        command.line = command.line.replace(DATABASES[backend], f"'{database}'")
        output = shell.run(command)
        assert matches(output, command.output), f"{command.line}\n{output}\ndoes not match\n{command.output}"
    assert any(database in command.line for command in found)


def test_the_commands_of_an_upgrade(shell: Shell) -> None:
    listed = commands("sqlite", UPGRADE)
    assert len(listed) > 8
    for command in listed:
        output = shell.run(command)
        assert matches(output, command.output), f"{command.line}\n{output}\ndoes not match\n{command.output}"


def test_what_matches() -> None:
    assert matches("backup 7: 3 pairs\n", "backup ...: ... pairs")
    assert not matches("error: no\nbackup 7: 3 pairs", "backup ...: ... pairs")
