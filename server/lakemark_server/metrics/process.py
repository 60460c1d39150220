"""The instruments of this process."""

from __future__ import annotations

from typing import Final

from lakemark_server.metrics.instruments import Counter, Gauge, Histogram

REQUESTS: Final = Histogram(
    "lakemark_request_seconds",
    "Requests by protocol and method, from when they are taken to their answer; without streams of events.",
    ("protocol", "method"),
)
REQUEST_ERRORS: Final = Counter(
    "lakemark_request_errors_total", "Requests that were answered with an error.", ("protocol", "method", "code")
)
STORE: Final = Histogram(
    "lakemark_store_seconds", "Work of the store: reads as a whole, and durable commits.", ("operation",)
)
STORE_REPEATS: Final = Counter(
    "lakemark_store_repeats_total", "Attempts at a transaction of the store that were made again after a conflict."
)
STORE_TRANSACTIONS: Final = Gauge(
    "lakemark_store_transactions_open", "Transactions of the store that are under way, and change something."
)
EVENTS_TOLD: Final = Counter("lakemark_events_told_total", "Events that changes of this process have told.", ("kind",))
COMMITS: Final = Counter("lakemark_commits_total", "Versions of lake tables that this process has published.")
COMMIT_CONFLICTS: Final = Counter(
    "lakemark_commit_conflicts_total", "Commits that were refused because they collide with others."
)
SWEEPS: Final = Counter("lakemark_sweeps_total", "Rounds of housekeeping in this process.", ("outcome",))
WRITERS_LOST: Final = Counter("lakemark_writers_lost_total", "Lost writers that were rolled back.")
CLEANS: Final = Counter("lakemark_cleans_total", "Runs of the cleaner that deleted something.")
CLEANED_FILES: Final = Counter("lakemark_cleaned_files_total", "Files that the cleaner has deleted.")
OPTIMIZATION_PLANS: Final = Counter(
    "lakemark_optimization_tasks_planned_total", "Tasks of optimization that were planned.", ("kind",)
)
OPTIMIZATION_TASKS_ENDED: Final = Counter(
    "lakemark_optimization_tasks_ended_total", "Tasks of optimization that have ended.", ("state",)
)
OPTIMIZATION_BYTES: Final = Counter(
    "lakemark_optimization_written_bytes_total", "Bytes of files that optimization has written and committed."
)

COUNTERS: Final = (
    REQUEST_ERRORS,
    STORE_REPEATS,
    EVENTS_TOLD,
    COMMITS,
    COMMIT_CONFLICTS,
    SWEEPS,
    WRITERS_LOST,
    CLEANS,
    CLEANED_FILES,
    OPTIMIZATION_PLANS,
    OPTIMIZATION_TASKS_ENDED,
    OPTIMIZATION_BYTES,
)
GAUGES: Final = (STORE_TRANSACTIONS,)
HISTOGRAMS: Final = (REQUESTS, STORE)
