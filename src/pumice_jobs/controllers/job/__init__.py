"""Volcano's Jobs: what is seen goes in, what shall be done comes out."""
