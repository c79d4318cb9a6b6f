"""Pods that reach each other: names for all of them and, as root, a network of their own."""
