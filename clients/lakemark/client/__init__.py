"""The client of the service: catalog, writers, timeline, plans. ``lakemark.public`` has its public names.

Nothing is imported here: ``lakemark.reading`` needs some modules of this package, and others need ``lakemark.reading``.
"""
