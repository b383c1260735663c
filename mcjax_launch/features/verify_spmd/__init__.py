"""features.verify_spmd."""
