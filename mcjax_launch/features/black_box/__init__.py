"""--black-box: collects facts that each host can find out about a job that fails or hangs."""
