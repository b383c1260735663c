"""--black-box: collects what each host can see of a job that fails or hangs."""
