"""The context of a command: the service to ask, and how to print results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import typer

from lakemark import Client
from lakemark.cli.output import show_done, show_json

SERVER_DEFAULT: Final = "127.0.0.1:9090"


@dataclass(frozen=True)
class Invocation:
    """The options that stand before a command."""

    server: str
    as_json: bool
    timeout_s: float

    @contextmanager
    def client(self) -> Iterator[Client]:
        with Client(self.server, self.timeout_s) as client:
            yield client

    def tell(self, result: Any, words: str) -> None:
        """What a command has done: ``result`` as JSON, or a line of words."""
        if self.as_json:
            show_json(result)
        else:
            show_done(words)


def invocation(context: typer.Context) -> Invocation:
    options = context.obj
    assert isinstance(options, Invocation)  # noqa: S101 - set by the callback that stands before every command
    return options
