"""Other systems that the benchmarks and the oracle tests start beside Lakemark."""
