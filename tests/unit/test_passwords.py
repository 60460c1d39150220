"""The file of users, and what is remembered of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.access import passwords
from lakemark_server.access.passwords import UsersFile, check_of, user_line


def write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    seen = path.stat()
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1_000_000_000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


def test_only_the_right_password_fits(path: Path) -> None:
    write(path, "# people", "", user_line("ann", "one"), user_line("béla", "twö "))
    check = UsersFile(str(path))
    assert check("ann", "one")
    assert check("béla", "twö ")
    wrong = [
        ("ann", "two"),
        ("ann", ""),
        ("carl", "one"),
        ("", ""),
        ("ann", "one "),
        ("béla", "twö"),
        ("ann", "\udcff"),
    ]
    assert not any(check(*one) for one in wrong)


def test_lines_have_no_password_and_each_a_salt_of_its_own() -> None:
    first, second = user_line("ann", "secret"), user_line("ann", "secret")
    assert first != second
    assert "secret" not in first


def test_what_fits_is_hashed_once_and_what_does_not_each_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, user_line("ann", "one"))
    check = UsersFile(str(path))
    hashed: list[str] = []
    derived = passwords._derived

    def counted(password: str, *rest: int | bytes) -> bytes:
        hashed.append(password)
        return derived(password, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(passwords, "_derived", counted)
    assert [check("ann", text) for text in ("one", "one", "two", "two", "one")] == [True, True, False, False, True]
    assert check("nobody-knows", "one") is False
    assert hashed == ["one", "two", "two", "one"]


def test_what_is_known_to_fit_needs_no_hash(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, user_line("ann", "one"), user_line("bob", "two"))
    check = UsersFile(str(path))
    assert not check.known("ann", "one")
    assert check("ann", "one")
    assert not check("bob", "one")
    monkeypatch.setattr(passwords, "_derived", None)
    tried = [("ann", "one"), ("ann", "two"), ("bob", "one"), ("bob", "two"), ("carl", "one"), ("", "")]
    assert [check.known(*one) for one in tried] == [True, False, False, False, False, False]
    write(path, "# nobody")
    assert not check.known("ann", "one")


def test_changes_of_the_file_hold_at_once(path: Path) -> None:
    write(path, user_line("ann", "one"), user_line("bob", "two"))
    check = UsersFile(str(path))
    assert check("ann", "one")
    write(path, user_line("ann", "other"))
    assert (check("ann", "one"), check("bob", "two"), check("ann", "other")) == (False, False, True)
    write(path, user_line("ann", "other"), "a mistake")
    assert check("ann", "other")
    path.unlink()
    assert check("ann", "other")


@pytest.mark.parametrize(
    "line",
    [
        "ann",
        "ann:secret",
        "ann:md5$1$2$3$AA==$AA==",
        "ann:scrypt$16384$8$1$!$AA==",
        "ann:scrypt$1000000000$8$1$AAAA$AAAA",
        "ann:scrypt$16384$8$1$$",
        "ann:scrypt$16384$999$1$AAAA$AAAA",
    ],
)
def test_other_lines_are_refused(path: Path, line: str) -> None:
    write(path, user_line("bob", "x"), line)
    with pytest.raises(InvalidArgument, match="line 2"):
        UsersFile(str(path))


@pytest.mark.parametrize("name", ["", "a:b", " a", "#a", "a\nb", "a\0"])
def test_illegal_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        user_line(name, "x")


def test_settings_name_one_way(path: Path) -> None:
    write(path, user_line("ann", "one"))
    assert check_of("", "") is None
    assert check_of("", "tests.unit.test_passwords:allow") is allow
    with pytest.raises(InvalidArgument, match="one of them"):
        check_of(str(path), "tests.unit.test_passwords:allow")
    for named in ("os.path", "os.path:nothing", ":", "no such:thing"):
        with pytest.raises(InvalidArgument):
            check_of("", named)


def allow(user: str, password: str) -> bool:
    del user, password
    return True
