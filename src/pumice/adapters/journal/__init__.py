"""What a cutter of cards intends and has done, in a file (``ports.slices.Journal``)."""

from pumice.adapters.journal.file import FileJournal

__all__ = ["FileJournal"]
