"""How object stores are reached: settings of the process, and other accounts for some prefixes.

Names are PyIceberg's (``s3.endpoint``, ``s3.access-key-id`` …). In the environment they are in capitals with
underscores behind ``LAKEMARK_`` (``LAKEMARK_S3_ENDPOINT``). What they leave open comes from the usual variables and
files of AWS.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from lakemark_core.errors import InvalidArgument
from lakemark_core.storage.uris import S3Place, is_s3, normal_uri

CONFIG_VARIABLE: Final = "LAKEMARK_STORAGE_CONFIG"
WEBHDFS_VARIABLE: Final = "LAKEMARK_WEBHDFS"

CALL_SECONDS: Final = 10.0

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_SECRETS: Final = ("access_key_id", "secret_access_key", "session_token")
_WHO: Final = (*_SECRETS, "anonymous")
_TRUTH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class S3Settings:
    """One account at one S3 service. No text that it is shown as has a secret in it.

    ``endpoint`` is a URL; "": AWS itself. Buckets are named in the path at an endpoint, and in the host at AWS or with
    ``force_virtual_addressing``. Without ``access_key_id`` and ``anonymous`` credentials are looked for as all tools of
    AWS do. ``request_timeout``: seconds without a byte; ``max_attempts``: of each request, the first one included.
    """

    endpoint: str = ""
    region: str = ""
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    anonymous: bool = False
    force_virtual_addressing: bool = False
    connect_timeout: float = 5.0
    request_timeout: float = 20.0
    max_attempts: int = 5

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise InvalidArgument(f"s3.endpoint {self.endpoint!r} is no URL: begin it with http:// or https://")
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise InvalidArgument("s3.access-key-id and s3.secret-access-key are given together or not at all")
        if self.anonymous and self.access_key_id:
            raise InvalidArgument("s3.anonymous and s3.access-key-id exclude each other")
        if self.connect_timeout <= 0 or self.request_timeout <= 0:
            raise InvalidArgument("s3.connect-timeout and s3.request-timeout are positive numbers of seconds")
        if self.max_attempts < 1:
            raise InvalidArgument("s3.max-attempts is at least 1")

    @property
    def who(self) -> str:
        """Whose requests they are, for messages: never more than the beginning of the access key's id."""
        if self.anonymous:
            return "without credentials (s3.anonymous)"
        if self.access_key_id:
            return f"with access key {self.access_key_id[:4]}…"
        return "with the credentials that the environment has, if any"

    def with_values(self, values: Mapping[str, str | bool | float]) -> S3Settings:
        """Others in place of some, by name. Raises InvalidArgument."""
        kinds = {one.name: one.type for one in fields(self)}
        return replace(self, **{name: _as(str(kinds[name]), name, value) for name, value in values.items()})


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """``s3``: for all buckets but those below one of ``prefixes``, of which the longest one counts.

    ``webhdfs``: URL of a name node, by which ``hdfs:`` locations are reached; "": by libhdfs. ``call_seconds``: how
    long a request of a client waits for a store, with all attempts.
    """

    s3: S3Settings = S3Settings()
    prefixes: Mapping[str, S3Settings] = field(default_factory=dict)
    webhdfs: str = ""
    call_seconds: float = CALL_SECONDS

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        if self.webhdfs and not self.webhdfs.startswith(("http://", "https://")):
            raise InvalidArgument(f"webhdfs {self.webhdfs!r} is no URL: begin it with http:// or https://")

    def s3_at(self, place: S3Place) -> S3Settings:
        """Of a bucket and key."""
        if not self.prefixes:
            return self.s3
        path = place.path
        fitting = [prefix for prefix in self.prefixes if path == prefix or path.startswith(prefix + "/")]
        return self.prefixes[max(fitting, key=len)] if fitting else self.s3

    @classmethod
    def of(
        cls,
        values: Mapping[str, str],
        config: str,
        environment: Mapping[str, str],
        *,
        webhdfs: str = "",
        call_seconds: float = CALL_SECONDS,
    ) -> StorageSettings:
        """``values``: by name, "" for what is not given; ``config``: the path of a file with prefixes, or "".

        Raises InvalidArgument with what is wrong, and never with the value of a secret.
        """
        given = {name: value for name, value in values.items() if value != ""}
        for name, variables in (("endpoint", _ENDPOINTS), ("region", _REGIONS)):
            known = next((environment[one] for one in variables if environment.get(one)), "")
            if name not in given and known:
                given[name] = known
        general = S3Settings().with_values(given)
        return cls(general, _read(Path(config), general, environment) if config else {}, webhdfs, call_seconds)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> StorageSettings:
        """Raises InvalidArgument."""
        values = {one.name: environment.get(f"LAKEMARK_S3_{one.name.upper()}", "") for one in fields(S3Settings)}
        webhdfs = environment.get(WEBHDFS_VARIABLE, "")
        return cls.of(values, environment.get(CONFIG_VARIABLE, ""), environment, webhdfs=webhdfs)


def _read(path: Path, general: S3Settings, environment: Mapping[str, str]) -> dict[str, S3Settings]:
    """Settings by ``bucket/key`` prefix, from a TOML file with a table for each."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(f"the storage configuration {path} cannot be read: {error}", path=str(path)) from error
    prefixes = {}
    for prefix, table in content.items():
        try:
            prefixes[_place(prefix).path] = _section(table, general, environment)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}, [{prefix!r}]: {error.message}", path=str(path)) from error
    return prefixes


def _place(prefix: str) -> S3Place:
    if not is_s3(prefix):
        raise InvalidArgument("a section is named by the prefix that it is for, such as 's3://bucket/path'")
    return S3Place.of(normal_uri(prefix))


def _section(table: Any, general: S3Settings, environment: Mapping[str, str]) -> S3Settings:
    """Inherits what it does not say; credentials all or none of them."""
    known = {one.name for one in fields(S3Settings)}
    values: dict[str, str | bool | float] = {}
    for key, value in _flat(table).items():
        name = key.removeprefix("s3.").replace("-", "_")
        for ending, read in (("_env", _from_variable), ("_file", _from_file)):
            if key.startswith("s3.") and name.endswith(ending) and name.removesuffix(ending) in _SECRETS:
                values[name.removesuffix(ending)] = read(key, str(value), environment)
                break
        else:
            if not key.startswith("s3.") or name not in known:
                raise InvalidArgument(f"{key} is no setting; there are {', '.join(map(_written, sorted(known)))}")
            if name in ("secret_access_key", "session_token"):
                raise InvalidArgument(
                    f"{key} does not stand in this file: name the variable of the environment ({key}-env) or the file "
                    f"({key}-file) that has it"
                )
            values[name] = value
    if values.keys() & set(_WHO):
        general = replace(general, access_key_id="", secret_access_key="", session_token="", anonymous=False)
    return general.with_values(values)


def _flat(table: Any, above: str = "") -> dict[str, Any]:
    """``s3.endpoint`` is a table of TOML unless it is quoted."""
    if not isinstance(table, dict):
        raise InvalidArgument("it is no section")
    values: dict[str, Any] = {}
    for key, value in table.items():
        values |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return values


def _from_variable(key: str, name: str, environment: Mapping[str, str]) -> str:
    if not environment.get(name):
        raise InvalidArgument(f"{key}: there is no variable {name} in the environment")
    return environment[name]


def _from_file(key: str, path: str, environment: Mapping[str, str]) -> str:
    del environment
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{key}: {path} cannot be read: {type(error).__name__}") from error


def _as(kind: str, name: str, value: str | bool | float) -> Any:
    text = str(value).strip()
    if kind == "str":
        return text
    try:
        return _READ[kind](text)
    except (KeyError, ValueError):
        raise InvalidArgument(f"{_written(name)} is {text!r}, and should be {_KINDS[kind]}") from None


_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "bool": lambda text: _TRUTH[text.lower()],
    "int": int,
    "float": float,
}
_KINDS: Final = {"bool": "true or false", "int": "a whole number", "float": "a number"}


def _written(name: str) -> str:
    return f"s3.{name.replace('_', '-')}"
