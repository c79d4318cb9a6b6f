"""The scheduler daemon."""
