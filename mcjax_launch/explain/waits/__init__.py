"""Waits of ranks for one another: who waits for whom, whether for ever, and the words; pure."""
