"""What every job needs: a folder for each kind of process, and what goes between them."""
