"""Cutting cards into slices on demand, whatever the brand: what to do about wanted places, and what a crash has left.

Values in, steps out; ``apps/node/cutter.py`` performs them. What may be destroyed: only what the journal says that we made,
that no pod holds, and on which no process is.
"""
