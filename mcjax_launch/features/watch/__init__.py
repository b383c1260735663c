"""--watch: detection of saved files, and the decision to start the job again."""
