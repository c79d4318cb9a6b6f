"""The verbs of resources: each module answers requests of one kind."""
