"""The user's request, and the plan of what runs where: pure values."""
