"""Admission: what one tenant, and all of them together, may take from the service.

A tenant is a catalog, the unit by which the Hive Metastore separates customers ("hive" is the default one). What is
limited over all processes is counted in the store, in the transaction that takes it (``usage``). Rates and concurrency
are counted in memory, for each process on its own (``tenants``).
"""
