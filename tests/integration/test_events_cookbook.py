"""Runs the examples of docs/events.md and docs/conflicts.md: they print what the pages say ("..." is anything)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from lakemark.cli.app import run
from lakemark.client.events import KINDS
from tests.integration.grpc_server import running_service

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(
    r"<!-- run -->\n```(?P<language>console|python)\n(?P<code>.*?)```\n(?:```text\n(?P<output>.*?)```)?", re.DOTALL
)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_names_every_kind(kind: str) -> None:
    assert f"`{kind}`" in (DOCS / "events.md").read_text()


def as_printed(expected: str, printed: str) -> bool:
    pattern = r".*?".join(map(re.escape, expected.strip("\n").split("...")))
    lines = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, lines, re.DOTALL) is not None


@pytest.mark.parametrize(("page", "least"), [("events.md", 6), ("conflicts.md", 1)])
def test_the_examples_print_what_the_page_says(
    page: str, least: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = list(_BLOCK.finditer((DOCS / page).read_text()))
    assert len(blocks) >= least
    with running_service(tmp_path) as service:
        names: dict[str, Any] = {"server": service.grpc_address}

        def check(what: str, expected: str) -> None:
            printed = capsys.readouterr().out
            assert as_printed(expected, printed), f"{what}\nprinted:\n{printed}\nand not:\n{expected}"

        for block in blocks:
            capsys.readouterr()
            if block["language"] == "python":
                exec(block["code"], names)  # noqa: S102 - our own page
                check(block["code"], block["output"] or "")
                continue
            for part in re.split(r"^\$ ", block["code"], flags=re.MULTILINE)[1:]:
                line, _, expected = part.partition("\n")
                program, *arguments = shlex.split(line)
                assert program == "lakemark"
                assert run(["--server", service.grpc_address, *arguments]) == 0, line
                check(line, expected)
