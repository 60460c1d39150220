"""What a process counts of its own work (docs/operations.md): instruments, and the list of all of them.

They belong to the process, as its threads do. Whether anybody reads them is no matter of those who count. None has
tables or files among its labels: their number has no bound.
"""

from lakemark_server.metrics.instruments import Counter, Gauge, Histogram, Sample

__all__ = ["Counter", "Gauge", "Histogram", "Sample"]
