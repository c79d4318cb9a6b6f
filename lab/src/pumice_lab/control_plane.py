"""The control plane of a cluster behind one handle: the embedded API server, or the real etcd and kube-apiserver."""

from __future__ import annotations

import random
import sqlite3
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pumice.model.errors import BadInput
from pumice.ports.clock import Clock
from pumice_lab import kube_control_plane
from pumice_lab.apiserver import ADMIN, ApiServer, Served, Storage, User, open_storage, serve
from pumice_lab.datadir import DataDir
from pumice_lab.free_ports import check_free, taken
from pumice_lab.pki import Pki


class ControlPlane(Protocol):
    """The API server of a cluster that runs. ``server`` is the URL that clients use."""

    server: str

    async def stop(self) -> None: ...


@dataclass(slots=True)
class EmbeddedControlPlane:
    server: str
    api: ApiServer
    served: Served
    storage: Storage = field(repr=False)

    async def stop(self) -> None:
        await self.served.close()
        self.storage.close()


async def start_embedded(data: DataDir, pki: Pki, *, address: str, port: int, clock: Clock, rng: random.Random,
                         kubelet_tokens: Sequence[tuple[str, str]]) -> EmbeddedControlPlane:
    """Open the storage and listen. ``kubelet_tokens`` are (node, token). Raises BadInput when the port is taken."""
    try:
        storage = open_storage(data.database)
    except sqlite3.Error as error:
        raise BadInput(f"data dir {data.root}: its database cannot be opened: {error}") from error
    api = ApiServer(storage, clock, rng, mounts_tokens=True)
    api.tokens.sign_with(pki.service_account_key.read_bytes())
    tokens = {pki.admin_token: ADMIN}
    tokens |= {token: User(f"system:node:{node}", groups=("system:nodes",)) for node, token in kubelet_tokens}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.server_cert, pki.server_key)
    try:
        served = await serve(api, address, port, context, tokens, kubelet_identity=(pki.server_cert, pki.server_key))
    except OSError as error:
        storage.close()
        raise taken(address, port, error) from error
    return EmbeddedControlPlane(f"https://{address}:{served.port}", api, served, storage)


async def start_kube(data: DataDir, pki: Pki, *, address: str, port: int, clock: Clock,
                     kubelet_tokens: Sequence[tuple[str, str]]) -> kube_control_plane.KubeControlPlane:
    """Start the real one with the binaries of KUBEBUILDER_ASSETS. Raises BadInput or Unavailable."""
    if port:
        check_free(address, port)
    users = [f'{token},system:node:{node},{node},"system:nodes"' for node, token in kubelet_tokens]
    return await kube_control_plane.start(kube_control_plane.find_assets(), data.root / "kube", data.logs, pki, clock=clock,
                                          address=address, port=port, users=users, service_accounts=True)


def usual_port(data: DataDir, wanted: int, address: str) -> int:
    """The port to use: the wanted one; else that of the last time, when it is free, so that a kubeconfig stays good."""
    last = int((data.facts() or {}).get("port") or 0)
    if wanted or not last:
        return wanted
    try:
        check_free(address, last)
    except BadInput:
        return 0
    return last
