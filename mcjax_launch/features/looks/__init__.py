"""Who is slow: while somebody looks at a run, the main threads of its ranks are sampled."""
