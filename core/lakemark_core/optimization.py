"""How a table wants to be looked after, as its properties say it, and which of its files a run takes
(docs/management.md). Pure.

The words are those of the field: a *fragment* is a file below an eighth of the target size, a *segment* one below half
of it. A *minor* run folds deltas and merges fragments, a *major* run merges segments, a *full* run writes a partition
again in the order of its clustering columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_core.file_layout import CLUSTERING_COLUMNS_PROPERTY, FILE_SIZE_PROPERTY, layout_of
from lakemark_core.property_values import switch, whole_number
from lakemark_core.table_kind import BUCKETS_PROPERTY, kind_of

ENABLED_PROPERTY: Final = "lakemark.optimize.enabled"
GROUP_PROPERTY: Final = "lakemark.optimize.group"
PRIORITY_PROPERTY: Final = "lakemark.optimize.priority"
QUOTA_PROPERTY: Final = "lakemark.optimize.quota-percent"
RUN_BYTES_PROPERTY: Final = "lakemark.optimize.run-bytes-max"
INTERVAL_PROPERTY: Final = "lakemark.optimize.interval-min-ms"
FRAGMENTS_PROPERTY: Final = "lakemark.optimize.minor.fragments"
DELTA_COMMITS_PROPERTY: Final = "lakemark.optimize.minor.delta-commits"
DELTA_BYTES_PROPERTY: Final = "lakemark.optimize.minor.delta-bytes"
MINOR_INTERVAL_PROPERTY: Final = "lakemark.optimize.minor.interval-ms"
SEGMENTS_PROPERTY: Final = "lakemark.optimize.major.segments"
DELETE_PERCENT_PROPERTY: Final = "lakemark.optimize.major.delete-percent"
FULL_INTERVAL_PROPERTY: Final = "lakemark.optimize.full.interval-ms"
ATTEMPTS_PROPERTY: Final = "lakemark.optimize.attempts-max"
SPLITS_PROPERTY: Final = "lakemark.optimize.bucket-splits"

GROUP_DEFAULT: Final = "default"
GROUP_CHARS_MAX: Final = 100
FRAGMENT_PARTS: Final = 8
"""A file below this part of the target size is a fragment."""
SEGMENT_PARTS: Final = 2
"""A file below this part of the target size is a segment, unless it is a fragment."""

_SWITCHES: Final = (ENABLED_PROPERTY, SPLITS_PROPERTY)
# name -> (field of the policy, least, default, greatest; 0: any)
_NUMBERS: Final[Mapping[str, tuple[str, int, int, int]]] = {
    PRIORITY_PROPERTY: ("priority", 0, 5, 9),
    QUOTA_PROPERTY: ("quota_percent", 1, 100, 100),
    RUN_BYTES_PROPERTY: ("run_bytes_max", 1 << 20, 500 << 20, 0),
    INTERVAL_PROPERTY: ("interval_min_ms", 0, 60_000, 0),
    FRAGMENTS_PROPERTY: ("fragments", 2, 16, 0),
    DELTA_COMMITS_PROPERTY: ("delta_commits", 1, 8, 0),
    DELTA_BYTES_PROPERTY: ("delta_bytes", 1, 64 << 20, 0),
    MINOR_INTERVAL_PROPERTY: ("minor_interval_ms", 0, 3_600_000, 0),
    SEGMENTS_PROPERTY: ("segments", 2, 8, 0),
    DELETE_PERCENT_PROPERTY: ("delete_percent", 1, 10, 100),
    FULL_INTERVAL_PROPERTY: ("full_interval_ms", 0, 0, 0),
    ATTEMPTS_PROPERTY: ("attempts_max", 1, 5, 100),
}
PROPERTIES: Final = (*_SWITCHES, GROUP_PROPERTY, *_NUMBERS)


@dataclass(frozen=True, slots=True)
class OptimizationPolicy:
    """Made by ``policy_of``. Sizes in bytes, times in ms.

    ``priority``: 0 to 9, the greater the sooner. ``quota_percent``: of the worker time of its group in an hour that the
    table may use. ``run_bytes_max``: what one task reads at most. ``interval_min_ms``: between two runs on a partition.
    ``minor_interval_ms``: after it a partition is optimized that has anything to fold or merge; 0: never for that
    reason. ``full_interval_ms`` 0: no full runs. ``attempts_max``: failures in a row until a partition is left alone.
    ``bucket_splits``: whether buckets of an extendible index are split when they have grown.
    """

    enabled: bool
    group: str
    priority: int
    quota_percent: int
    run_bytes_max: int
    interval_min_ms: int
    fragments: int
    delta_commits: int
    delta_bytes: int
    minor_interval_ms: int
    segments: int
    delete_percent: int
    full_interval_ms: int
    attempts_max: int
    target_bytes: int
    buckets: int
    bucket_splits: bool = True

    @property
    def fragment_bytes(self) -> int:
        """A smaller file is a fragment."""
        return self.target_bytes // FRAGMENT_PARTS

    @property
    def segment_bytes(self) -> int:
        """A smaller file is a segment or a fragment."""
        return self.target_bytes // SEGMENT_PARTS


def policy_of(properties: Mapping[str, str]) -> OptimizationPolicy:
    """The policy of a table with these properties.

    Raises InvalidArgument for illegal values, and for those that contradict each other.
    """
    group = properties.get(GROUP_PROPERTY, GROUP_DEFAULT).strip()
    check_group(group)
    numbers = {given[0]: _number(properties, name) for name, given in _NUMBERS.items()}
    policy = OptimizationPolicy(
        enabled=switch(properties, ENABLED_PROPERTY) if ENABLED_PROPERTY in properties else True,
        group=group,
        target_bytes=layout_of(properties).target_bytes,
        buckets=kind_of(properties).buckets,
        bucket_splits=switch(properties, SPLITS_PROPERTY) if SPLITS_PROPERTY in properties else True,
        **numbers,
    )
    _check_together(policy, properties)
    return policy


def described(policy: OptimizationPolicy) -> dict[str, str]:
    """The properties that stand for the policy, defaults included."""
    numbers = {name: str(getattr(policy, given[0])) for name, given in _NUMBERS.items()}
    switches = {ENABLED_PROPERTY: policy.enabled, SPLITS_PROPERTY: policy.bucket_splits}
    words = {name: str(value).lower() for name, value in switches.items()}
    return {**words, GROUP_PROPERTY: policy.group, **numbers, FILE_SIZE_PROPERTY: str(policy.target_bytes)}


def check_group(name: str) -> None:
    """Raises InvalidArgument for what cannot name a group of workers."""
    if not 0 < len(name) <= GROUP_CHARS_MAX or not all(char.isalnum() or char in "_-." for char in name):
        raise InvalidArgument(
            f"{name[:GROUP_CHARS_MAX]!r} cannot name an optimizer group: use 1 to {GROUP_CHARS_MAX} letters, digits, "
            "'_', '-' and '.'"
        )


def _number(properties: Mapping[str, str], name: str) -> int:
    _, least, default, greatest = _NUMBERS[name]
    if name not in properties:
        return default
    number = whole_number(properties, name, least)
    if greatest and number > greatest:
        raise InvalidArgument(f"{name} = {properties[name]!r} is not a number from {least} to {greatest}")
    return number


def _check_together(policy: OptimizationPolicy, properties: Mapping[str, str]) -> None:
    if policy.run_bytes_max < policy.target_bytes and RUN_BYTES_PROPERTY in properties:
        raise InvalidArgument(
            f"{RUN_BYTES_PROPERTY} = {policy.run_bytes_max} is less than {FILE_SIZE_PROPERTY}, which is "
            f"{policy.target_bytes}: no run could make a single file of that size; make the first larger or the second "
            "smaller"
        )
    if 0 < policy.minor_interval_ms < policy.interval_min_ms:
        raise InvalidArgument(
            f"{MINOR_INTERVAL_PROPERTY} = {policy.minor_interval_ms} asks for a run more often than "
            f"{INTERVAL_PROPERTY} = {policy.interval_min_ms} allows"
        )
    if policy.full_interval_ms and policy.buckets:
        raise InvalidArgument(
            f"{FULL_INTERVAL_PROPERTY} is for tables without {BUCKETS_PROPERTY}: with buckets the key of a row says "
            "which file it is in, and no other order is possible"
        )
    if policy.full_interval_ms and CLUSTERING_COLUMNS_PROPERTY not in properties:
        raise InvalidArgument(
            f"{FULL_INTERVAL_PROPERTY} asks for partitions in order, but no order is given: set "
            f"{CLUSTERING_COLUMNS_PROPERTY}, too"
        )
    if 0 < policy.full_interval_ms < policy.interval_min_ms:
        raise InvalidArgument(
            f"{FULL_INTERVAL_PROPERTY} = {policy.full_interval_ms} asks for a run more often than "
            f"{INTERVAL_PROPERTY} = {policy.interval_min_ms} allows"
        )


def files_to_merge(sizes: Iterable[int], bytes_max: int) -> int:
    """How many of some files, of which these are the sizes in increasing order, are merged together; 0: none.

    The greatest of them is at most as large as the others together. So a file that was merged is merged again only
    with as much as itself, and a byte is written O(log n) times on its way to a good size, however small the commits
    were (the size tiers of log-structured merge trees: O'Neil et al., 1996). At most ``bytes_max`` are taken.
    """
    taken = total = 0
    for count, size in enumerate(sizes, 1):
        if total + size > bytes_max:
            break
        if count > 1 and size <= total:
            taken = count
        total += size
    return taken
