"""Benchmarks of Lakemark beside its peers. Run one with `scripts/bench NAME [--json]`."""
