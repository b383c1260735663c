"""--on-rank-failure: ranks that go on when another one fails."""
