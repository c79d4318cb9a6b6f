"""Shares of the cards of one machine, without a cluster: who holds what, who may join, and what each one uses."""
