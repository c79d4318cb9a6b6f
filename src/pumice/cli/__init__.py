"""The command line: one file per command; each reads arguments, calls, prints."""

ASK_FOR_WORDS = "__complete"
"""The hidden command by which a shell asks which words may come next (see ``completion``)."""
