"""Facts about one run of a job, without any judgement."""
