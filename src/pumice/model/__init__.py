"""Values of the domain, without I/O: units, cards, asks, grants, refusals, plans. Imports nothing of ours."""
