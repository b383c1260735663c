"""What `scripts/bench` measures: one noun a file."""
