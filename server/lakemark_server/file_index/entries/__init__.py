"""File entries: what is known of data files, by column.

How they are received, what they must satisfy to be let in, and their statistics, ready to be compared with a literal.
"""
