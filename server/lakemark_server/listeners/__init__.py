"""Listeners: what is configured of outside Metastores that follow a catalog, and what their runners tell.

The runners themselves speak the Metastore's protocol and live beside the facade (``lakemark_hms.listener``).
"""
