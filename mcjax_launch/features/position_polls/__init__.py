"""Sampling of main threads' positions: shows which ranks are slow, or move on an accelerator."""
