"""Reading snapshots: plans, exact filters, and small scans without an engine."""

from lakemark.reading.aggregates import Aggregates
from lakemark.reading.changes import Changes, list_changes
from lakemark.reading.filters import to_arrow_filter
from lakemark.reading.plan import Plan, PlanSummary
from lakemark.reading.scan import read_plan

__all__ = ["Aggregates", "Changes", "Plan", "PlanSummary", "list_changes", "read_plan", "to_arrow_filter"]
