"""Metrics from a snapshot at scrape time: nothing is kept, so a dead pod leaves no series."""
