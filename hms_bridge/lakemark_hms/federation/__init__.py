"""Databases of outside Metastores, read through under names of ours (docs/listener.md).

``places`` finds the database that a call names, and gives databases other names in calls and answers. ``mounted`` knows
which databases are mounted, and asks the outside Metastores. ``handlers`` stands before the handlers of the facade.
"""
