"""Benchmarks of Lakemark beside its peers; run one with `scripts/bench NAME [--json]`."""
