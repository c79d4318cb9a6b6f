"""Volcano's Jobs (spec volcano-core 16 to 18): what is seen goes in, what shall be done comes out."""
