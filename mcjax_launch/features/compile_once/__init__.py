"""--compile-once and --compile-cache: the ranks of a host compile each program only once."""
