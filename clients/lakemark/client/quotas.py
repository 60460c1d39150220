"""Quotas of tenants: what a catalog may use, and what it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from google.protobuf.message import Message

from lakemark.arguments import checked
from lakemark.client.calls import Calls
from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import admin_pb2 as pb
from lakemark_proto.v1.admin_pb2_grpc import AdminServiceStub

QUOTA_NAMES: Final = tuple(field.name for field in pb.Quota.DESCRIPTOR.fields)


@dataclass(frozen=True, slots=True)
class TenantQuota:
    """The quota of one catalog. All fields are by limit name.

    ``limits`` are those in force, ``own`` those set for this catalog, ``usage`` is how much it uses.
    ``running_requests`` and ``refused_requests`` are those of the process that answered.
    """

    catalog: str
    limits: Mapping[str, float]
    own: Mapping[str, float]
    usage: Mapping[str, int]


@checked
class Quotas:
    """``client.quotas``. ``catalog`` "" is the default catalog."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = AdminServiceStub(calls.channel)

    def get(self, catalog: str = "") -> TenantQuota:
        """The quota of a catalog."""
        return _from(self._call(self._stub.GetQuota, pb.GetQuotaRequest(catalog=catalog)))

    def set(self, catalog: str = "", **limits: float) -> TenantQuota:
        """Sets limits; the others stay. Raises InvalidArgument for an unknown name or a negative limit."""
        quota = pb.Quota()
        for name, value in limits.items():
            if name not in QUOTA_NAMES:
                raise InvalidArgument(f"there is no limit {name!r}; there are: {', '.join(QUOTA_NAMES)}")
            try:
                setattr(quota, name, value)
            except (TypeError, ValueError) as error:
                raise InvalidArgument(f"{name} must be a whole number below 2^63, and is {value!r}") from error
        return self._set(pb.SetQuotaRequest(catalog=catalog, quota=quota))

    def clear(self, catalog: str = "", *names: str) -> TenantQuota:
        """Resets these limits, or all of them, to the service's defaults."""
        return self._set(pb.SetQuotaRequest(catalog=catalog, clear=names, clear_all=not names))

    def list(self) -> Iterator[TenantQuota]:
        """The quotas of all catalogs with databases or own limits, in order of name."""
        token = ""
        while True:
            answer = self._call(self._stub.ListQuotas, pb.ListQuotasRequest(page_token=token))
            yield from map(_from, answer.quotas)
            token = answer.next_page_token
            if not token:
                return

    def _set(self, request: pb.SetQuotaRequest) -> TenantQuota:
        request.request_id = str(uuid4())
        return _from(self._call(self._stub.SetQuota, request, mutation=True))


def _from(answer: pb.TenantQuota) -> TenantQuota:
    usage = {field.name: getattr(answer.usage, field.name) for field in pb.Usage.DESCRIPTOR.fields}
    return TenantQuota(answer.catalog, _given(answer.limits), _given(answer.own), usage)


def _given(quota: Message) -> dict[str, float]:
    return {field.name: value for field, value in quota.ListFields()}
