"""Device families, pure: one folder each. ``protocol`` is the contract that the engine drives, ``registry`` the list of them."""
