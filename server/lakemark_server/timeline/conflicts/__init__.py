"""What an instant changes, and when two of them exclude each other.

Optimistic concurrency with one rule table (docs/conflicts.md).
"""
