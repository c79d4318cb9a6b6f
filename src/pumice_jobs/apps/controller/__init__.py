"""The controller daemon."""
