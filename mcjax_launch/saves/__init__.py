"""--watch: which files are saved, and whether the job is to be started again for that."""
