"""--preload: modules are imported once on each host, and the ranks forked."""
