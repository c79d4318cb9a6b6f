"""What is refused and what is filled in before an object is stored (spec volcano-core 20). Pure: a request in, an answer out."""
