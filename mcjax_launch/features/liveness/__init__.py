"""Polling of main threads on accelerators, where only Python shows whether a rank moves."""
