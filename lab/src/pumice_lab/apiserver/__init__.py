"""The embedded API server: Kubernetes' API over SQLite, for one machine.

    storage = open_storage(path)
    api = ApiServer(storage, clock, rng)
    served = await serve(api, "127.0.0.1", 6443, tls, {token: User("kubernetes-admin", groups=("system:masters",))})

The rooms: ``storage`` (objects and history), ``registry`` (kinds as data), ``schema`` (what their fields are), ``strategies`` and
``admission`` (rules), ``objects`` (the steps of a write), ``doors`` (how far each way reaches), ``patch``, ``verbs`` and
``subresources`` (requests), ``tables``, ``discovery`` and ``openapi`` (what kubectl reads), ``server`` (one entrance, no
sockets), ``transport`` and ``tunnel`` (sockets).
"""

from pumice_lab.apiserver.http_types import ADMIN, Request, Response, User
from pumice_lab.apiserver.server import ApiServer
from pumice_lab.apiserver.storage import Storage, open_storage
from pumice_lab.apiserver.transport import Served, serve

__all__ = ["ADMIN", "ApiServer", "Request", "Response", "Served", "Storage", "User", "open_storage", "serve"]
