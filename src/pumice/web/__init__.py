"""A page of a cluster, or of one machine, for people: ``pumice web``. It reads and never writes."""
