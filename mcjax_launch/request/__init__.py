"""What a user asks for: checked, completed from this machine, made a job, and run."""
