"""--rehearse: causes faults on purpose, to show what follows from them."""
