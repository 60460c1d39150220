"""Branches: where they fork, and which of their versions can still be read.

And what one head has and another lacks, and whether that may be merged (docs/branches.md).
"""
