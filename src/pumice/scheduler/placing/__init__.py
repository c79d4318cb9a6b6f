"""Choice of a node and of its cards: filtering and scoring by class of identical pods, and the reasons where none fits."""
