"""Delegation tokens: their format, and who may do what with them."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import InvalidArgument, LimitExceeded
from lakemark_server.access.token_format import Identifier, Token
from lakemark_server.access.tokens import KEY_MS, DelegationTokens, TokenLimits
from lakemark_server.kv import Store, keys_below
from lakemark_server.process import open_or_make
from lakemark_server.store.keyspace import MASTER_KEYS, TOKEN_COUNTS, TOKENS, TOKENS_DUE
from lakemark_server.store.mutations import Mutations
from tests.lakes import Clock
from tests.stores import store_url

DAY_MS = 86_400_000
texts = st.text(st.characters(codec="utf-8"), max_size=50)
whole = st.integers(-(1 << 63), (1 << 63) - 1)
identifiers = st.builds(Identifier, texts, texts, texts, whole, whole, whole, whole)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_or_make(store_url(tmp_path))
    yield store
    store.close()


@pytest.fixture
def tokens(store: Store, clock: Clock) -> DelegationTokens:
    return DelegationTokens(Mutations(store, clock), TokenLimits(of_owner_max=3))


def valid(tokens: DelegationTokens, text: str) -> bool:
    token = Token.of(text)
    try:
        return hmac.compare_digest(tokens.secret_of(token.identifier).password, token.password)
    except InvalidArgument:
        return False


def left(store: Store) -> int:
    return sum(1 for space in (TOKENS, TOKENS_DUE, TOKEN_COUNTS) for _ in keys_below(store, space))


@given(identifiers)
def test_an_identifier_is_read_as_it_was_written(identifier: Identifier) -> None:
    assert Identifier.decoded(identifier.encoded()) == identifier


def test_an_identifier_is_as_hadoop_writes_it() -> None:
    """Bytes by the rules of Hadoop's WritableUtils: -112 to 127 in a byte, others with their size and sign before."""
    identifier = Identifier("ann", "", "é", 0x0102030405, 127, 128, -300)
    expected = b"\0" + b"\x03ann" + b"\0" + b"\x02\xc3\xa9" + b"\x8b\x01\x02\x03\x04\x05" + b"\x7f" + b"\x8f\x80"
    assert identifier.encoded() == expected + b"\x86\x01\x2b"


@given(st.binary(max_size=60), st.binary(max_size=30), texts, texts)
def test_a_token_is_read_as_it_was_written(identifier: bytes, password: bytes, kind: str, service: str) -> None:
    token = Token(identifier, password, kind, service)
    assert Token.of(token.text()) == token
    assert "=" not in token.text()


@given(st.one_of(st.text(), st.text("ABCDEFGHijklmnop0123-_=", max_size=80)))
def test_other_texts_are_refused_in_words(text: str) -> None:
    try:
        token = Token.of(text)
    except ValueError:
        return
    assert Token.of(token.text()) == token


@given(st.binary(max_size=60))
def test_other_bytes_are_no_identifiers(data: bytes) -> None:
    try:
        identifier = Identifier.decoded(data)
    except ValueError:
        return
    assert Identifier.decoded(identifier.encoded()) == identifier


def test_a_token_works_in_all_processes_of_a_store(tokens: DelegationTokens, store: Store, clock: Clock) -> None:
    text = tokens.issue("ann", "yarn")
    other = DelegationTokens(Mutations(store, clock), TokenLimits())
    assert valid(other, text)
    assert other.secret_of(Token.of(text).identifier).owner == "ann"
    assert tokens.issue("ann", "yarn") != text
    other.cancel(text, "ann")
    assert not valid(tokens, text)


def test_a_token_expires_unless_it_is_renewed(tokens: DelegationTokens, store: Store, clock: Clock) -> None:
    text, forgotten = tokens.issue("ann", "yarn"), tokens.issue("ann", "")
    clock.advance(DAY_MS - 1)
    assert valid(tokens, text)
    assert tokens.renew(text, "yarn") == clock.ms + DAY_MS
    assert tokens.sweep() == 0
    clock.advance(1)
    assert valid(tokens, text)
    assert not valid(tokens, forgotten)
    for action in (tokens.renew, tokens.cancel):
        with pytest.raises(InvalidArgument, match="has expired"):
            action(forgotten, "ann")
    assert tokens.sweep() == 1
    clock.advance(DAY_MS)
    assert tokens.sweep() == 1
    assert left(store) == 0


def test_no_renewal_goes_beyond_the_lifetime(tokens: DelegationTokens, store: Store, clock: Clock) -> None:
    text, end_ms = tokens.issue("ann", "yarn"), clock.ms + 7 * DAY_MS
    for _ in range(13):
        clock.advance(DAY_MS // 2)
        assert tokens.renew(text, "yarn") == min(clock.ms + DAY_MS, end_ms)
    assert tokens.sweep() == 0
    clock.advance(DAY_MS // 2)
    assert not valid(tokens, text)
    assert tokens.sweep() == 1
    assert left(store) == 0


def test_who_may_renew_and_cancel(tokens: DelegationTokens) -> None:
    text, alone = tokens.issue("ann", "yarn"), tokens.issue("ann", "")
    for user in ("ann", "bob", ""):
        with pytest.raises(InvalidArgument, match="may not renew the delegation token of ann: only yarn may"):
            tokens.renew(text, user)
    with pytest.raises(InvalidArgument, match="it has no renewer"):
        tokens.renew(alone, "yarn")
    with pytest.raises(InvalidArgument, match="bob may not cancel"):
        tokens.cancel(text, "bob")
    tokens.cancel(text, "yarn")
    tokens.cancel(alone, "ann")
    with pytest.raises(InvalidArgument, match="was cancelled"):
        tokens.cancel(text, "yarn")


def test_forged_tokens(tokens: DelegationTokens, store: Store) -> None:
    """What a token says of itself cannot be changed, and its password cannot be made without the master key."""
    text = tokens.issue("ann", "yarn")
    token, own = Token.of(text), Identifier.decoded(Token.of(text).identifier)
    for changed in (
        replace(own, owner="root"),
        replace(own, renewer="bob"),
        replace(own, last_ms=own.last_ms + 1),
        replace(own, number=own.number ^ 1),
        replace(own, number=-1),
        replace(own, number=1 << 62),
        replace(own, key_id=own.key_id + 1),
        replace(own, owner=""),
        replace(own, owner="a" * 1_000),
    ):
        forged = token._replace(identifier=changed.encoded()).text()
        assert not valid(tokens, forged)
        with pytest.raises(InvalidArgument, match="has expired, was cancelled, or was never given out"):
            tokens.renew(forged, changed.renewer)
    for password in (b"", b"\0" * 20, token.password[:-1]):
        with pytest.raises(InvalidArgument, match="the password of the delegation token is wrong"):
            tokens.cancel(token._replace(password=password).text(), "ann")
    for nonsense in ("", "no token", "AAAA", text[:-3], text + "AAAA", "é" * 20, "A" * 100_000):
        with pytest.raises(InvalidArgument, match="delegation token"):
            tokens.renew(nonsense, "yarn")
    assert valid(tokens, text)
    store.transact(lambda tx: tx.clear_range(*MASTER_KEYS.range()))
    assert not valid(tokens, text)


def test_a_user_has_so_many_tokens(tokens: DelegationTokens, clock: Clock) -> None:
    kept = [tokens.issue("ann", "yarn") for _ in range(3)]
    with pytest.raises(LimitExceeded, match="ann has 3 delegation tokens; cancel some"):
        tokens.issue("ann", "yarn")
    tokens.issue("bob", "yarn")
    tokens.cancel(kept[0], "ann")
    tokens.issue("ann", "yarn")
    clock.advance(DAY_MS)
    assert tokens.sweep() == 4
    assert tokens.issue("ann", "yarn")


@pytest.mark.parametrize("name", ["a" * 257, "ann\n", "\ud800"])
def test_names_are_bounded(tokens: DelegationTokens, name: str) -> None:
    with pytest.raises(InvalidArgument, match="a name in a delegation token"):
        tokens.issue(name, "yarn")
    with pytest.raises(InvalidArgument, match="a name in a delegation token"):
        tokens.issue("ann", name)


def test_master_keys_change_and_are_removed(tokens: DelegationTokens, store: Store, clock: Clock) -> None:
    def keys() -> int:
        return sum(1 for _ in keys_below(store, MASTER_KEYS))

    first = tokens.issue("ann", "yarn")
    clock.advance(KEY_MS - 1)
    tokens.renew(first, "yarn")
    tokens.issue("ann", "yarn")
    assert keys() == 1
    clock.advance(1)
    second = tokens.issue("ann", "yarn")
    assert keys() == 2
    assert valid(tokens, first)
    assert valid(tokens, second)
    assert Identifier.decoded(Token.of(second).identifier).key_id == 2
    clock.advance(30 * DAY_MS)
    assert tokens.sweep() == 3
    assert keys() == 0


def test_a_longer_lifetime_takes_a_new_master_key(tokens: DelegationTokens, store: Store, clock: Clock) -> None:
    tokens.issue("ann", "yarn")
    longer = DelegationTokens(Mutations(store, clock), TokenLimits(lifetime_ms=100 * DAY_MS, renew_ms=100 * DAY_MS))
    text = longer.issue("ann", "yarn")
    clock.advance(99 * DAY_MS)
    assert longer.sweep() == 1
    assert valid(longer, text)


def test_secrets_are_not_shown(tokens: DelegationTokens) -> None:
    token = Token.of(tokens.issue("ann", "yarn"))
    assert repr(tokens.secret_of(token.identifier)) == "Secret('ann')"
