"""The client of the service: catalog, writers, timeline, plans. Its public names are those of ``lakemark``.

Nothing is imported here: ``lakemark.reading`` needs some modules of this package, and others need ``lakemark.reading``.
"""
