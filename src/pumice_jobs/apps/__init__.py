"""The daemons ``pumice controller`` and ``pumice webhook``: they watch, ask what follows, and carry it out."""
