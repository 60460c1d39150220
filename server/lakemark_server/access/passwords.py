"""A file of users with hashed passwords, and the check of a password.

Each line is ``name:scrypt$<N>$<r>$<p>$<salt>$<hash>``; empty lines and those that begin with # are skipped. The file is
read again when it has changed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import os
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from lakemark_core.errors import InvalidArgument

PasswordCheck: TypeAlias = Callable[[str, str], bool]
"""Whether a user has this password. May wait, and is called by several threads."""

# 16 MiB and some 50 ms for each guess.
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1
_COST_MAX: Final = 1 << 20
_BLOCK_MAX: Final = 32
_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_KNOWN_MAX: Final = 10_000
_SCHEME: Final = "scrypt"

_log = structlog.get_logger(__name__)


def user_line(name: str, password: str) -> str:
    """The line of the file for a user, with a new salt. Raises InvalidArgument for an illegal name or password."""
    if not name or ":" in name or name != name.strip() or name.startswith("#") or not name.isprintable():
        raise InvalidArgument(f"{name!r} is no name of a user: it must be printable, without ':' and blanks around it")
    if not password or "\0" in password:
        raise InvalidArgument("the password is empty, or has a NUL character, which no client can send")
    salt = secrets.token_bytes(_SALT_BYTES)
    key = _derived(password, salt, _COST, _BLOCK, _PARALLEL)
    return f"{name}:{_SCHEME}${_COST}${_BLOCK}${_PARALLEL}${_text(salt)}${_text(key)}"


@dataclass(frozen=True, slots=True)
class _Hashed:
    cost: int
    block: int
    parallel: int
    salt: bytes
    key: bytes

    def fits(self, password: str) -> bool:
        key = _derived(password, self.salt, self.cost, self.block, self.parallel)
        return hmac.compare_digest(key, self.key)


class UsersFile:
    """Thread-safe. A PasswordCheck. Raises InvalidArgument for a file that cannot be read when it is made.

    A later version of the file that cannot be read is logged, and the users stay as they were. That a password fits is
    remembered, as a digest with a key of this process, because the hash takes long on purpose.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(_KEY_BYTES)
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._nobody = _parsed(user_line("nobody", secrets.token_hex()).partition(":")[2])
        self._stamp = self._look()
        self._users = self._read()

    def known(self, user: str, password: str) -> bool:
        """Whether the password is remembered to fit. False says nothing. Takes no hash, so it does not wait."""
        with self._lock:
            self._refresh()
            return self._remembers(user, self._digest(user, password))

    def __call__(self, user: str, password: str) -> bool:
        digest = self._digest(user, password)
        with self._lock:
            self._refresh()
            hashed = self._users.get(user)
            if self._remembers(user, digest):
                return True
        # Who guesses names learns nothing by the time that it takes.
        fits = (hashed or self._nobody).fits(password) and hashed is not None
        with self._lock:
            if fits and self._users.get(user) is hashed:
                self._known[user] = digest
                while len(self._known) > _KNOWN_MAX:
                    self._known.popitem(last=False)
        return fits

    def _digest(self, user: str, password: str) -> bytes:
        return hmac.digest(self._secret, f"{user}:{password}".encode("utf-8", "replace"), "sha256")

    def _remembers(self, user: str, digest: bytes) -> bool:
        if user not in self._users or not hmac.compare_digest(self._known.get(user, b""), digest):
            return False
        self._known.move_to_end(user)
        return True

    def _refresh(self) -> None:
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._users = self._read()
            self._known.clear()
        except (InvalidArgument, OSError) as error:
            _log.error("the file of users is left as it was read before", path=str(self._path), error=str(error))

    def _look(self) -> tuple[int, int, int]:
        try:
            seen = self._path.stat()
        except OSError as error:
            raise InvalidArgument(f"the file of users {self._path} cannot be read: {error.strerror}") from error
        if seen.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~stat.S_IRGRP:
            _log.warning("others may read or change the file of users: chmod 600", path=str(self._path))
        return seen.st_mtime_ns, seen.st_size, seen.st_ino

    def _read(self) -> Mapping[str, _Hashed]:
        try:
            lines = self._path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"the file of users {self._path} cannot be read: {error}") from error
        users: dict[str, _Hashed] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, text = line.partition(":")
            try:
                users[name] = _parsed(text.strip())
            except ValueError as error:
                raise InvalidArgument(
                    f"line {number} of the file of users {self._path} is none of `lakemark password`"
                ) from error
        return users


def check_of(users_file: str, named: str) -> PasswordCheck | None:
    """The check that settings ask for: a file of users, or ``package.module:function``; None: no check.

    Raises InvalidArgument.
    """
    if users_file and named:
        raise InvalidArgument("users_file and password_check are two ways for the same: set one of them")
    if users_file:
        return UsersFile(users_file)
    if not named:
        return None
    module, _, name = named.partition(":")
    try:
        check: PasswordCheck = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"password_check={named} is no package.module:function: {error}") from error
    return check


def _parsed(text: str) -> _Hashed:
    scheme, cost, block, parallel, salt, key = text.split("$")
    hashed = _Hashed(int(cost), int(block), int(parallel), base64.b64decode(salt), base64.b64decode(key))
    legal = hashed.cost > 1 and not hashed.cost & (hashed.cost - 1) and hashed.cost <= _COST_MAX
    if scheme != _SCHEME or not legal or not 0 < hashed.block <= _BLOCK_MAX or hashed.parallel != 1:
        raise ValueError("no hash of this service")
    if not hashed.salt or len(hashed.key) != _KEY_BYTES:
        raise ValueError("a salt or key of another size")
    return hashed


def _derived(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        os.fsencode(password),
        salt=salt,
        n=cost,
        r=block,
        p=parallel,
        maxmem=256 * cost * block + (1 << 20),
        dklen=_KEY_BYTES,
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
