"""vcctl and its short forms, and the commands that run the daemons."""
