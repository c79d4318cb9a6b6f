"""Types of devices, one folder each: what a request means and which card fits it, pure, for schedulers; ``node``, pure, what its
plugin decides on a node; ``plugin``, the daemon with its command and options. ``protocol`` is the contract that the engine
drives, ``registry`` the list of them."""
