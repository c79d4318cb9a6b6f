"""The journal of a slice manager, in a file (``ports.slices.Journal``)."""

from pumice.adapters.journal.file import FileJournal

__all__ = ["FileJournal"]
