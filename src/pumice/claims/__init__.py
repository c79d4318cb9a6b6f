"""Claims of Dynamic Resource Allocation (``resource.k8s.io/v1``): which devices a pod's claims would get on a node, or why none.

Pure: slices, classes, claims and what is in use are values, the search is a generator that the caller may leave for a while.
Sources: Kubernetes, "Dynamic Resource Allocation"; where 1.36.1 is wrong, ``docs/reference/claims.md`` says what is done instead.

- ``objects``: what the API server holds; ``slices``: the pools of a node;
- ``usage``: what allocated claims hold; ``capacity``, ``attributes``, ``selecting``: the rules of one device;
- ``requests`` and ``search``: what is asked, and the search; ``allocation``: what is written; ``reasons``: why not.
"""
