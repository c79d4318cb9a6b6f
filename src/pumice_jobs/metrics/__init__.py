"""The metrics pages of controller and webhook."""
