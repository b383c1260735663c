"""What runs inside a rank's Python; the standard library alone, nothing of ours imported."""
