"""The options, each declared once, and the kinds of their values."""
