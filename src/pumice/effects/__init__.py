"""Effects on the world: one vocabulary, one performer, one backoff, one event recorder, one work queue.

Whoever decides returns effects as plain data. Whoever performs them is here, below all daemons and the laboratory's controllers.
"""
