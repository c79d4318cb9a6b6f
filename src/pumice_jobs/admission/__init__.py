"""Admission: refusals, and fields that are filled in, before an object is stored. Pure: a request in, an answer out."""
