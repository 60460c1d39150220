"""Bases: all files of a branch up to one version, in pages of the store. Folding begins there."""
