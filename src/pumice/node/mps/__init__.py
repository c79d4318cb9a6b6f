"""MPS as a way to share cards: a control daemon for each card, and what its clients are held to."""
