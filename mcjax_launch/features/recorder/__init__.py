"""Record of the programs that each rank runs over several processes, compared while it runs."""
