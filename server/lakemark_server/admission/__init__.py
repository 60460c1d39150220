"""Admission: what one tenant, and all of them together, may take from the service.

A tenant is a catalog: the unit in which the Hive Metastore keeps customers apart ("hive" is the default one). Limits
that must hold over all processes are counted in the store, in the transaction that takes what is limited (``usage``);
rates and concurrency are counted in memory, for each process on its own (``tenants``).
"""
