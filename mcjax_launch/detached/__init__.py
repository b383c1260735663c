"""Jobs without a terminal: their folders, what is written there, and terminals that return."""
