"""Doors: engines that know only the Hive Metastore insert rows into lake tables (docs/sql-writes.md).

A statement writes into a directory that it alone was given, and calls the service when it is done. The call does not
say which directory that was. So ``decisions``, which is pure, says which ones the call ends; ``publication`` makes a
commit of each, under a request id that is the directory's name; ``records`` keeps in the store what was decided, so
that it is decided once, whichever process is asked. ``directories`` has their names, ``contents`` looks into them.

Rows into a table with a key are written again by bucket: ``keyed_files`` does it for a statement, ``bucket_files`` for
the rows of a partition, which ``statement_rows`` reads and ``key_hashes`` puts into buckets; ``base_files`` says what
lies under them.
"""
