"""What `scripts/gpu-check` is made of. It needs Python 3.9 and the standard library alone."""
