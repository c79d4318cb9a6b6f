"""Making room: which pods go so that others find their places (Volcano pkg/scheduler/actions/preempt)."""
