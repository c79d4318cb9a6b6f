"""One scheduling cycle: its steps, its actions, and what it writes at its end."""
