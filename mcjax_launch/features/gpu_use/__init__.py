"""Reports on what ranks do on GPUs, and on who holds the memory there."""
