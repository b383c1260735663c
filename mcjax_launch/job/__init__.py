"""What the user asked for and what will run where: pure values."""
