"""Names of doors."""

from __future__ import annotations

import pytest

from lakemark_hms.doors.names import DoorName, door_names, door_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t__append", [("t", "", "append")]),
        ("T__Overwrite", [("t", "", "overwrite")]),
        ("t__dev__append", [("t__dev", "", "append"), ("t", "dev", "append")]),
        ("a__b__c__upsert", [("a__b__c", "", "upsert"), ("a__b", "c", "upsert")]),
        ("t_append", []),
        ("t__", []),
        ("__append", []),
        ("append", []),
        ("t__write", []),
    ],
)
def test_what_a_name_can_stand_for(name: str, expected: list[tuple[str, str, str]]) -> None:
    assert list(door_names(name)) == [DoorName(*one) for one in expected]


def test_the_name_of_a_door() -> None:
    assert (door_of("t", "append"), door_of("t", "append", "dev")) == ("t__append", "t__dev__append")
