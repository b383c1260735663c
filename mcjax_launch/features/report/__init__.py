"""--report: a run's record, as JSON or as a page."""
