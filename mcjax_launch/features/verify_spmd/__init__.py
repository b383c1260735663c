"""--verify-spmd: programs that differ between ranks."""
