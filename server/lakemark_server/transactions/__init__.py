"""Locks, transactions and write ids, as Hive's clients have them: who may write when, and what readers must not see.

``conflicts`` and ``visibility`` decide and are pure; ``locks``, ``txns`` and ``write_ids`` read and write inside a
transaction of the store; ``service`` is what others call.
"""
