"""--watch: which files are saved, and whether that restarts the job."""
