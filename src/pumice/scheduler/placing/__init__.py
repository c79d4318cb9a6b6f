"""Which node and which cards: filtering and scoring by class of identical pods, and the reasons where none fits."""
