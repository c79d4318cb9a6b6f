"""Volcano's Jobs beside scheduler and node: the controllers, the admission webhooks and vcctl."""
