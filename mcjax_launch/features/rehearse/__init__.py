"""--rehearse: faults that are made on purpose, to see what comes of them."""
