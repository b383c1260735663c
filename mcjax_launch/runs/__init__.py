"""What is known of one run of a job: facts only, no judgement."""
