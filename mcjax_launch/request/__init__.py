"""Conversion of the user's request into a checked job that is ready to run, and its run."""
