"""Keeps chosen databases and tables in an outside Hive Metastore (docs/listener.md).

``decisions`` says what differs and which calls bring the outside object in line; it is pure. ``facts`` says what of an
object counts. ``ours`` shows our objects as the outside Metastore is to have them. ``mirror`` looks at both sides of an
object and carries decisions out. ``targets`` says which objects an event makes worth a look. ``runner`` follows the
log of events.
"""
