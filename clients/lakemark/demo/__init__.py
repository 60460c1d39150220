"""``lakemark demo``: the whole tour on real data, with plain Spark, checked step by step."""
