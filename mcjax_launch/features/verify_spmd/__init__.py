"""--verify-spmd: holds programs until all ranks run the same; ends jobs whose programs differ."""
