"""Benchmarks: ratios in one run, beside peers and the machine's own limits."""
