"""Chunks: nothing is lost, a change affects only its own chunks, and a changed manifest is detected."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark_server.backup import BackupDamaged, BackupFormatUnknown
from lakemark_server.backup.chunks import CHUNK_BYTES_AIM, CHUNK_BYTES_MAX, chunks, pairs_of
from lakemark_server.backup.manifest import ChunkEntry, Manifest, decode, encode, is_id

MANIFEST = Manifest(
    id="20261121T101608.240Z",
    lakemark="1.2.3",
    store="sqlite",
    version=7,
    started="2026-11-21T10:16:08.240+00:00",
    finished="2026-11-21T10:16:09.240+00:00",
    chunks=[ChunkEntry("0f" * 32, 3, 400), ChunkEntry("1a" * 32, 2, 100)],
    new_chunks=1,
    new_bytes=90,
)


@settings(max_examples=50)
@given(st.dictionaries(st.binary(max_size=30), st.one_of(st.binary(max_size=50), st.just(bytes(300_000))), max_size=40))
def test_all_pairs_come_back(content: dict[bytes, bytes]) -> None:
    pairs = sorted(content.items())
    made = list(chunks(pairs))
    assert [pair for chunk in made for pair in pairs_of(chunk.data)] == pairs
    assert sum(chunk.pairs for chunk in made) == len(pairs)


def many(seed: int, count: int = 60_000) -> dict[bytes, bytes]:
    chance = random.Random(seed)
    return {b"%08d" % number: chance.randbytes(chance.choice([20, 200, 2_000])) for number in range(count)}


def test_chunks_are_as_large_as_they_should_be() -> None:
    made = [len(chunk.data) for chunk in chunks(sorted(many(1).items()))]
    assert CHUNK_BYTES_AIM / 2 < sum(made) / len(made) < CHUNK_BYTES_AIM * 2
    assert max(made) < CHUNK_BYTES_MAX + 3_000


def test_a_change_touches_the_chunks_next_to_it_only() -> None:
    content = many(2)
    before = {chunk.name for chunk in chunks(sorted(content.items()))}
    changes: list[dict[bytes, bytes | None]] = [
        {b"00030000": b"other"},
        {b"00030000x": b"one more"},
        {b"00030000": None},
        {b"%08d" % number: None for number in range(30_000, 30_500)},
        {b"99999999": b"appended"},
    ]
    for change in changes:
        changed = {key: value for key, value in (content | change).items() if value is not None}
        after = {chunk.name for chunk in chunks(sorted(changed.items()))}
        assert 1 <= len(after - before) <= 3
        assert len(before - after) <= 6


def test_a_manifest_comes_back() -> None:
    assert decode(encode(MANIFEST), "here") == MANIFEST
    assert (MANIFEST.pairs, MANIFEST.bytes) == (5, 500)
    assert MANIFEST.content != replace(MANIFEST, chunks=MANIFEST.chunks[::-1]).content


@settings(max_examples=200)
@given(st.data())
def test_a_manifest_that_was_changed_is_never_taken_for_another_one(data: st.DataObject) -> None:
    text = encode(MANIFEST)
    at = data.draw(st.integers(0, len(text) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "drop"]))
    changed = {
        "cut": text[:at],
        "flip": text[:at] + bytes([text[at] ^ (1 << data.draw(st.integers(0, 6)))]) + text[at + 1 :],
        "drop": text[:at] + text[at + 1 :],
    }[how]
    with suppress(BackupDamaged, BackupFormatUnknown):
        assert decode(changed, "here") == MANIFEST, "only blanks may differ"


@pytest.mark.parametrize("wrong", ["", "../../etc/passwd", "20261121T101608Z", "20261121T101608.240Z.json"])
def test_ids(wrong: str) -> None:
    assert is_id(MANIFEST.id)
    assert not is_id(wrong)
