"""The methods that are served: each declares its rank, and docs/hms.md lists it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from lakemark_hms.handlers import SUBJECTS, all_handlers, rank_of
from lakemark_hms.handlers.subject import Subject, method, require_distinct
from lakemark_hms.services import Services
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.services import METHODS

LEFT_OUT = "## Methods that are not answered"
DOCUMENT = Path(__file__).parents[3] / "docs" / "hms.md"
RANKS = {name: rank for subject in SUBJECTS for name, rank in subject.ranks.items()}
CHANGES = ("add_", "alter_", "append_", "create_", "delete_", "drop_", "rename_", "truncate_", "update_")


class Anything:
    """Services that no handler asks anything."""

    def __getattr__(self, name: str) -> Any:
        return Anything()


def test_what_changes_metadata_is_a_write() -> None:
    assert {rank for name, rank in RANKS.items() if name.startswith(CHANGES)} == {Rank.WRITE}


def test_every_declared_method_has_a_handler() -> None:
    handlers = all_handlers(cast(Services, Anything()))
    assert handlers.keys() == RANKS.keys()
    assert all(callable(handler) for handler in handlers.values())


def test_a_method_that_is_not_served_ranks_as_a_read() -> None:
    """To say that it is unknown changes nothing, and must not wait behind writes."""
    assert {rank_of(name) for name in METHODS if name not in RANKS} == {Rank.READ}
    assert rank_of("no_such_method") is Rank.READ


def test_a_name_that_the_contract_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="the contract has no method 'get_tabel'"):
        method("get_tabel", Rank.READ)


def test_a_method_is_declared_once() -> None:
    with pytest.raises(ValueError, match="the method 'get_table' is declared twice"):

        class Twice(Subject, title="Twice"):
            @method("get_table", Rank.READ)
            @method("get_table_req", Rank.READ)
            def get(self, call: object) -> None: ...

            @method("get_table", Rank.READ)
            def get_again(self, call: object) -> None: ...

    with pytest.raises(ValueError, match="the method 'a' is declared twice"):
        require_distinct(iter("aba"))


def test_the_documentation_lists_every_method() -> None:
    def cell(subject: type[Subject], rank: Rank) -> str:
        return ", ".join(f"`{name}`" for name, of in subject.ranks.items() if of is rank)

    text = DOCUMENT.read_text()
    assert f"describes {len(METHODS)} methods" in text
    assert f"{len(RANKS)} are answered" in text
    rows = [f"| {subject.title} | {' | '.join(cell(subject, rank) for rank in Rank)} |" for subject in SUBJECTS]
    table = "\n".join(["| subject | reads | writes | vital |", "|---|---|---|---|", *rows, ""])
    assert table in text, f"docs/hms.md should have this table:\n{table}"


def test_the_documentation_lists_every_method_that_is_left_out() -> None:
    """Also those of which the contract has nothing, since no client calls them."""
    section = DOCUMENT.read_text().split(LEFT_OUT)[1].split("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    named = [name for row in rows[1:] for name in re.findall(r"`(\w+)`", row[2])]
    require_distinct(iter(named))
    assert not RANKS.keys() & set(named)
    assert METHODS.keys() - RANKS.keys() <= set(named)
