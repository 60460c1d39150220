"""Writes the Python package ``lakemark_thrift`` from ``thrift/hive_metastore.thrift``.

The IDL is parsed by thriftpy2, which is needed at build time only. What comes out are plain classes whose
``thrift_spec`` has the shape that Apache thrift's C codec (``thrift.protocol.fastbinary``) reads:
``(field id, wire type, name, type arguments, default)`` at the index of the field id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HEADER = "# Generated from thrift/hive_metastore.thrift by scripts/generate.py: do not edit.\n"

# thriftpy2 gives `binary` a number of its own; on the wire it is a string.
_BINARY = 18
_STRING = 11
_STRUCT, _MAP, _SET, _LIST, _I32 = 12, 13, 14, 15, 8
_SCALARS = {2: "bool", 3: "int", 4: "float", 6: "int", 8: "int", 10: "int", 11: "str", _BINARY: "bytes"}

_BASE = '''
"""What all generated structs share."""

from __future__ import annotations

from typing import Any, ClassVar


class Struct:
    """A thrift struct; a field that was not sent, or is not to be sent, is None.

    ``thrift_spec`` is made for ``thrift.protocol.fastbinary``.
    """

    __slots__: tuple[str, ...] = ()
    thrift_spec: ClassVar[tuple[Any, ...]] = ()

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in self.__slots__)
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in shown if v is not None)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


class DeclaredError(Exception):
    """An exception that methods of the contract declare; it carries one text."""

    thrift_spec: ClassVar[tuple[Any, ...]] = ()

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message or ""
'''

_SERVICES_HEAD = '''
"""Arguments and results of every method, and the table of methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from lakemark_thrift import ttypes
from lakemark_thrift.base import DeclaredError, Struct


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the contract.

    ``success`` is the result's entry for what the method returns (None: it returns nothing), ``exceptions`` maps each
    declared exception to its field id in the result. A one-way method has no result.
    """

    name: str
    args: type[Struct]
    result: type[Struct] | None
    success: tuple[Any, ...] | None = field(repr=False)
    exceptions: dict[type[DeclaredError], int] = field(repr=False)
    oneway: bool
'''


def render(idl: Path) -> dict[str, str]:
    """The files of the package, name -> text; raises thriftpy2's parser errors on an IDL that is not legal."""
    from thriftpy2.parser.parser import parse  # type: ignore[import-untyped,unused-ignore]

    module = parse(str(idl), module_name="hive_metastore_thrift", enable_cache=False)  # type: ignore[no-untyped-call,unused-ignore]
    meta = module.__thrift_meta__
    structs = [*meta["structs"], *meta["unions"]]
    return {
        "__init__.py": HEADER + '"""The Hive Metastore contract: structs in ``ttypes``, methods in ``services``."""\n',
        "base.py": HEADER + _BASE,
        "ttypes.py": _ttypes(meta["enums"], structs, meta["exceptions"]),
        "services.py": _services(meta["services"]),
        "py.typed": "",
    }


def _ttypes(enums: list[Any], structs: list[Any], exceptions: list[Any]) -> str:
    out = [HEADER, '"""Enums, structs and exceptions of the Hive Metastore contract."""\n']
    out.append("from __future__ import annotations\n\nfrom enum import IntEnum\nfrom typing import Any, ClassVar\n")
    out.append("from lakemark_thrift.base import DeclaredError, Struct\n")
    for enum in enums:
        out.append(f"\nclass {enum.__name__}(IntEnum):")
        out.extend(f"    {name} = {value}" for value, name in sorted(enum._VALUES_TO_NAMES.items()))
        out.append("")
    out.extend(
        f"\nclass {error.__name__}(DeclaredError):\n    thrift_spec: ClassVar[tuple[Any, ...]]\n"
        for error in exceptions
    )
    out.extend(_struct(struct, struct.__name__) for struct in structs)
    # Two-element lists, filled when all classes exist: structs may refer to each other in circles.
    named = [cls.__name__ for cls in [*structs, *exceptions]]
    out.append("\n_REFS: dict[str, list[Any]] = {")
    out.extend(f'    "{name}": [{name}, None],' for name in named)
    out.append("}\n")
    out.extend(f"{cls.__name__}.thrift_spec = {_spec(cls, '')}" for cls in [*structs, *exceptions])
    out.append("for _ref in _REFS.values():\n    _ref[1] = _ref[0].thrift_spec\n")
    return "\n".join(out)


def _services(services: list[Any]) -> str:
    methods: dict[str, Any] = {}
    for service in services:
        methods |= dict.fromkeys(service.thrift_services, service)
    out = [HEADER + _SERVICES_HEAD]
    table = ["\nMETHODS: dict[str, Method] = {"]
    for name, service in methods.items():
        args, result = getattr(service, f"{name}_args"), getattr(service, f"{name}_result")
        out.append(_struct(args, f"{name}_args", "ttypes."))
        out.append(f"\n{name}_args.thrift_spec = {_spec(args, 'ttypes.')}\n")
        if result.oneway:
            table.append(f'    "{name}": Method("{name}", {name}_args, None, None, {{}}, True),')
            continue
        out.append(_struct(result, f"{name}_result", "ttypes."))
        out.append(f"\n{name}_result.thrift_spec = {_spec(result, 'ttypes.')}\n")
        success = f"{name}_result.thrift_spec[0]" if 0 in result.thrift_spec else "None"
        errors = ", ".join(f"ttypes.{f[2].__name__}: {fid}" for fid, f in sorted(result.thrift_spec.items()) if fid > 0)
        table.append(f'    "{name}": Method("{name}", {name}_args, {name}_result, {success}, {{{errors}}}, False),')
    return "\n".join([*out, *table, "}\n"])


def _struct(cls: Any, name: str, prefix: str = "") -> str:
    fields = [(spec[1], _annotation(*_type_of(spec), prefix)) for _, spec in sorted(cls.thrift_spec.items())]
    defaults = dict(cls.default_spec)
    slots = "".join(f'"{field}", ' for field, _ in fields).rstrip()
    out = [f"\nclass {name}(Struct):", f"    __slots__ = ({slots})", "    thrift_spec: ClassVar[tuple[Any, ...]]"]
    out.extend(f"    {field}: {note} | None" for field, note in fields)
    if fields:
        out.append("\n    def __init__(\n        self,")
        out.extend(f"        {field}: {note} | None = {_plain(defaults.get(field))}," for field, note in fields)
        out.append("    ) -> None:")
        out.extend(f"        self.{field} = {field}" for field, _ in fields)
    out.append("")
    return "\n".join(out)


def _spec(cls: Any, prefix: str) -> str:
    """The ``thrift_spec`` tuple as Python source; ids that were never used are None."""
    entries = cls.thrift_spec
    if not entries:
        return "()"
    defaults = dict(cls.default_spec)
    out = []
    for fid in range(max(entries) + 1):
        if fid not in entries:
            out.append("None")
            continue
        ttype, sub = _type_of(entries[fid])
        name = entries[fid][1]
        default = _plain(defaults.get(name))
        out.append(f'({fid}, {_wire(ttype)}, "{name}", {_type_args(ttype, sub, prefix, frozen=False)}, {default})')
    return "(\n    " + ",\n    ".join(out) + ",\n)"


def _type_of(spec: tuple[Any, ...]) -> tuple[int, Any]:
    """(wire type, element types) of a thriftpy2 entry ``(type, name[, element types], required)``."""
    return spec[0], spec[2] if len(spec) == 4 else None


def _split(element: Any) -> tuple[int, Any]:
    """The same of an element inside a container, which is a bare number or a pair."""
    return (element, None) if isinstance(element, int) else (element[0], element[1])


def _wire(ttype: int) -> int:
    return _STRING if ttype == _BINARY else ttype


def _type_args(ttype: int, sub: Any, prefix: str, *, frozen: bool) -> str:
    """Type arguments as the C codec wants them; ``frozen`` containers decode to hashable ones (keys of maps)."""
    if ttype == _STRING:
        return '"UTF8"'
    if ttype == _BINARY:
        return '"BINARY"'
    if ttype == _STRUCT:
        return f'{prefix}_REFS["{sub.__name__}"]'
    if ttype in (_LIST, _SET):
        element, inner = _split(sub)
        args = _type_args(element, inner, prefix, frozen=frozen or ttype == _SET)
        return f"({_wire(element)}, {args}, {frozen})"
    if ttype == _MAP:
        (key, key_sub), (value, value_sub) = _split(sub[0]), _split(sub[1])
        keys = _type_args(key, key_sub, prefix, frozen=True)
        values = _type_args(value, value_sub, prefix, frozen=frozen)
        return f"({_wire(key)}, {keys}, {_wire(value)}, {values}, {frozen})"
    return "None"


def _annotation(ttype: int, sub: Any, prefix: str, *, frozen: bool = False) -> str:
    if ttype == _STRUCT:
        return f"{prefix}{sub.__name__}"
    if ttype == _LIST:
        inner = _annotation(*_split(sub), prefix, frozen=frozen)
        return f"tuple[{inner}, ...]" if frozen else f"list[{inner}]"
    if ttype == _SET:
        return f"{'frozenset' if frozen else 'set'}[{_annotation(*_split(sub), prefix, frozen=True)}]"
    if ttype == _MAP:
        key = _annotation(*_split(sub[0]), prefix, frozen=True)
        return f"dict[{key}, {_annotation(*_split(sub[1]), prefix, frozen=frozen)}]"
    return _SCALARS[ttype]


def _plain(default: Any) -> str:
    """A default as source; enum members of the parser become their numbers."""
    return repr(int(default)) if isinstance(default, int) and not isinstance(default, bool) else repr(default)
