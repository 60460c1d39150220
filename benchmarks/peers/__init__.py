"""Other systems that the benchmarks and the oracle tests run beside Lakemark."""
