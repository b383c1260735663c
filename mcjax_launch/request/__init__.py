"""From the user's request to a checked job that is ready to run, and its run."""
