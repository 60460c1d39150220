"""CompareVersions: pages through a comparison by partition. The compared versions stay the same from page to page."""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.rpc.catalog import page_limit
from lakemark_server.rpc.errors import detail_of
from lakemark_server.rpc.pages import decode_token, encode_token
from lakemark_server.snapshots.comparisons import Comparer, Comparison, DryMerge, VersionName
from lakemark_server.snapshots.versions.differences import COUNTS, FileDifferences
from lakemark_server.timeline.branches.divergence import Side
from lakemark_server.timeline.branches.forks import name_of

GROUPS_MAX: Final = 100


class _Token(NamedTuple):
    left: int
    right: int
    offset: int
    digest: str

    def encode(self) -> str:
        return encode_token(*self)

    @classmethod
    def decode(cls, text: str) -> _Token:
        return cls(*decode_token(text, int, int, int, str))


def compare(comparer: Comparer, table: LakeTable, request: pb.CompareVersionsRequest) -> pb.CompareVersionsResponse:
    """One page of a comparison.

    Raises as ``Comparer.compare``, and InvalidArgument for the token of another request.
    """
    token = _Token.decode(request.page_token) if request.page_token else None
    left = VersionName(request.left.name, request.left.version or None)
    right = VersionName(request.right.name, request.right.version or None)
    comparison = comparer.compare(table, left, right, (token.left, token.right) if token else None)
    versions = (comparison.left.head.version, comparison.right.head.version)
    digest = _digest(table.table_id, request, comparison)
    if token and (token.digest != digest or token[:2] != versions):
        raise InvalidArgument("the page token belongs to another request: send the same one again, with the token only")
    offset, size = token.offset if token else 0, page_limit(request.page_size)
    files = comparison.files
    response = pb.CompareVersionsResponse(
        left=_side(comparison.left, comparison.versions[0], files, "left"),
        right=_side(comparison.right, comparison.versions[1], files, "right"),
        left_into_right=_merge(comparison.merges[0]),
        right_into_left=_merge(comparison.merges[1]),
        partitions_changed=files.partitions.num_rows,
        partitions=[_partition(row) for row in files.partitions.slice(offset, size).to_pylist()],
        groups_on_both=files.groups.num_rows,
    )
    if not offset:
        for row in files.groups.slice(0, GROUPS_MAX).to_pylist():
            response.groups.add(partition=row["partition"], file_group=row["file_group"])
    if offset + size < files.partitions.num_rows:
        response.next_page_token = _Token(*versions, offset + size, digest).encode()
    return response


def _digest(table_id: int, request: pb.CompareVersionsRequest, comparison: Comparison) -> str:
    """A digest of what is compared, by ids and keys: others may have taken the names meanwhile."""
    same = pb.CompareVersionsRequest(left=request.left, right=request.right)
    keys = [side.head.lineage.key for side in (comparison.left, comparison.right)]
    data = f"{table_id} {keys} ".encode() + same.SerializeToString(deterministic=True)
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _side(side: Side, versions: int, files: FileDifferences, name: str) -> pb.CompareVersionsResponse.Side:
    return pb.CompareVersionsResponse.Side(
        branch=name_of(side.head.lineage.key),
        version=side.head.version,
        shared_version=side.after,
        versions=versions,
        changes=pb.FileChanges(**files.totals(name)),
    )


def _merge(merge: DryMerge) -> pb.CompareVersionsResponse.Merge:
    message = pb.CompareVersionsResponse.Merge(replayed=merge.replayed, fast_forward=merge.fast_forward)
    if merge.refused is not None:
        message.refused.CopyFrom(detail_of(merge.refused))
    return message


def _partition(row: dict[str, Any]) -> pb.CompareVersionsResponse.Partition:
    left, right = ({count: row[f"{side}.{count}"] for count in COUNTS} for side in ("left", "right"))
    return pb.CompareVersionsResponse.Partition(
        name=row["partition"],
        left=pb.FileChanges(**left),
        right=pb.FileChanges(**right),
        groups_on_both=row["both"],
    )
