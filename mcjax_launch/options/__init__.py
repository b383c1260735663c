"""The options: each declared once, the kinds of their values, and options as words again."""
