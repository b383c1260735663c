"""Core of every job: a folder for each kind of process, and the messages between them."""
