"""``--help``: every command has a sentence that says what it does, and every option a description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from lakemark.cli.app import app, run


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    if not inner:
        yield " ".join(path), command
    for name, one in inner.items():
        yield from commands(one, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("tables drop", "tables undrop")])
def test_help_is_there_and_reads_as_sentences(name: str) -> None:
    command = ALL[name]
    assert command.help.strip().endswith(".")
    first = command.help.split()[0]
    assert first.endswith("s"), f"a verb says what it does: {first}"
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert parameter.help, parameter.opts
        else:
            assert parameter.help or parameter.metavar, parameter.name


@pytest.mark.parametrize("name", list(ALL))
def test_help_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*name.split(), "--help"]) == 0
    assert name.rsplit(maxsplit=1)[-1] in capsys.readouterr().out
