"""The admission server: asks of an API server in, answers of ``admission`` out."""
