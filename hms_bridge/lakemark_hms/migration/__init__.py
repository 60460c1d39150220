"""Copies of a whole Metastore: from an outside one to this one, or the other way round, over the Thrift protocol.

``Migration`` walks through one side and brings the other side in line, object by object; what is the same already is
left as it is, so that it can be run again at any time. Both sides are Metastores of any kind.
"""

from lakemark_hms.migration.runner import Migration, Orders, Progress, Summary

__all__ = ["Migration", "Orders", "Progress", "Summary"]
