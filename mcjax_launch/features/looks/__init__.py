"""Where main threads of ranks are, sampled: who is slow, and who moves on an accelerator."""
