"""--black-box: what each host can see of a job that fails or hangs, brought home."""
