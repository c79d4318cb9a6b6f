"""Moving running pods so that a waiting one starts, or whole cards come free: who may be moved, and a plan."""
