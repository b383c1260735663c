"""--coordinator ssh: ranks reach their coordinator through agents and launcher."""
