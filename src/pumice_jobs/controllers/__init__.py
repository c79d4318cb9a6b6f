"""Controllers as pure functions: reconcile(desired, observed) -> actions. ``apps/controller`` performs them."""
