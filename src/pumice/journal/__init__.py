"""The scheduler's journal: what the engine was told and what it decided, to be played again."""
