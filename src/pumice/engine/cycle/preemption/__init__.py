"""Making room: which pods go so that others find their places (spec volcano-core 10.4 to 10.7)."""
