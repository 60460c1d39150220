"""Mounts: which databases of outside Metastores can be read under names of ours.

The Metastore's protocol is spoken beside the facade (``lakemark_hms.federation``).
"""
