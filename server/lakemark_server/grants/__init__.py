"""Roles and privileges as Hive's clients grant them: stored and answered, not enforced by this service."""
