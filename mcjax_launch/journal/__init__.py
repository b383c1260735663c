"""Facts of a job in order, the state that follows from them, and their form as events."""
