"""The hidden command by which a shell asks which words may come next (see ``completion``)."""

ASK_FOR_WORDS = "__complete"
