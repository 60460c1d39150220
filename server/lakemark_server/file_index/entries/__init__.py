"""File entries: metadata of data files, by column.

How entries are received and validated, and their statistics, prepared for comparison with literals.
"""
