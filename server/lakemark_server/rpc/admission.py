"""Admission of gRPC requests: what kind of request each is, whose it is, and whether it may go ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from lakemark_server.admission.tenants import Entered, Kind, Tenants
from lakemark_server.catalog.names import DEFAULT_CATALOG, NAME_CHARS_MAX, catalog_name

_READS: Final = ("Get", "List", "Plan", "Aggregate", "Find", "Compare", "Watch")
_VITAL_METHODS: Final = ("Heartbeat",)
_VITAL_SERVICES: Final = ("lakemark.v1.AdminService",)
_DEPTH_MAX: Final = 2


def kind_of(method: MethodDescriptor) -> Kind:
    if method.name in _VITAL_METHODS or method.containing_service.full_name in _VITAL_SERVICES:
        return Kind.VITAL
    return Kind.READ if method.name.startswith(_READS) else Kind.WRITE


def tenant_reader(request: Descriptor) -> Callable[[Message], str]:
    """How to find the tenant of such a request: its own field ``catalog``, or that of what it names.

    Of several tables the first one tells. A request that names nothing is the default tenant's.
    """
    path = _path(request, _DEPTH_MAX)

    def read(message: Message) -> str:
        found = message
        for field in path:
            found = getattr(found, field.name)
            if field.is_repeated:
                if not found:
                    return DEFAULT_CATALOG
                found = found[0]
        name = str(found)
        # No catalog has so long a name: whatever the request gets, it is not somebody else's fault.
        return catalog_name(name) if len(name) <= NAME_CHARS_MAX else DEFAULT_CATALOG

    return read if path else lambda _: DEFAULT_CATALOG


def _path(message: Descriptor, depth: int) -> list[FieldDescriptor]:
    if "catalog" in message.fields_by_name:
        return [message.fields_by_name["catalog"]]
    if depth:
        for field in message.fields:
            if field.message_type is not None:
                below = _path(field.message_type, depth - 1)
                if below:
                    return [field, *below]
    return []


class Admission:
    """Whether a decoded request of one method may go ahead."""

    def __init__(self, method: MethodDescriptor, tenants: Tenants) -> None:
        self.kind = kind_of(method)
        self._tenants = tenants
        self._tenant_of = tenant_reader(method.input_type)

    def enter(self, request: Message) -> Entered | None:
        """Counts the request until ``leave`` is given what this gives. Raises Overloaded."""
        if self.kind is Kind.VITAL:
            return None
        return self._tenants.enter(self._tenant_of(request), self.kind)

    def leave(self, entered: Entered | None) -> None:
        if entered is not None:
            self._tenants.leave(entered)
