"""Jobs without a terminal: their folders and files, and terminals that attach to them again."""
