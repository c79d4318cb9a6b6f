"""The observations of a node from which the doctor names faults."""
