"""A driver of claims on its two unix sockets: the one by which it registers in the kubelet's ``plugins_registry``, and its own,
on which the kubelet asks for claims to be prepared (pluginregistration v1 and dra v1 of k8s.io/kubelet)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from pumice.adapters.kubelet.endpoint import LONGEST_PATH
from pumice.adapters.kubelet.proto import draplugin_pb2 as dra
from pumice.adapters.kubelet.proto import pluginregistration_pb2 as reg
from pumice.model.errors import BadInput

log = logging.getLogger("pumice.kubelet")

SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
VERSIONS = ("v1.DRAPlugin",)


@dataclass(frozen=True, slots=True)
class ClaimKey:
    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    request: str
    pool: str
    device: str
    cdi: tuple[str, ...]
    share: str = ""


class ClaimHandler(Protocol):
    async def prepare(self, claim: ClaimKey) -> Sequence[PreparedDevice] | str:
        """The devices of a claim, or why it is refused. The same again for a claim that is prepared."""
        ...

    async def unprepare(self, claim: ClaimKey) -> str:
        """Return why it could not be done; empty also for a claim that is unknown."""
        ...


class ClaimDriver:
    """A driver of claims as the kubelet calls it. ``registered`` is set once the kubelet has taken the driver."""

    def __init__(self, kubelet: Path, name: str, handler: ClaimHandler) -> None:
        self.name, self.registered = name, asyncio.Event()
        self._socket = kubelet / "plugins" / name / "dra.sock"
        self._registration = kubelet / "plugins_registry" / f"{name}-reg.sock"
        self._handler = handler
        self._servers: list[Any] = []

    async def start(self) -> None:
        """Listen on both, the registration last. Raises BadInput where no socket can be made."""
        unary = grpc.unary_unary_rpc_method_handler
        await self._serve(self._socket, grpc.method_handlers_generic_handler(SERVICE, {
            "NodePrepareResources": unary(self._prepare, dra.NodePrepareResourcesRequest.FromString,
                                          dra.NodePrepareResourcesResponse.SerializeToString),
            "NodeUnprepareResources": unary(self._unprepare, dra.NodeUnprepareResourcesRequest.FromString,
                                            dra.NodeUnprepareResourcesResponse.SerializeToString),
        }))  # fmt: skip
        await self._serve(self._registration, grpc.method_handlers_generic_handler("pluginregistration.Registration", {
            "GetInfo": unary(self._info, reg.InfoRequest.FromString, reg.PluginInfo.SerializeToString),
            "NotifyRegistrationStatus": unary(self._notified, reg.RegistrationStatus.FromString,
                                              reg.RegistrationStatusResponse.SerializeToString),
        }))  # fmt: skip

    async def stop(self) -> None:
        """Stop listening; the kubelet sees the registration's socket go."""
        for server in reversed(self._servers):
            await server.stop(5.0)
        for path in (self._registration, self._socket):
            with contextlib.suppress(OSError):
                path.unlink()

    async def _serve(self, path: Path, methods: Any) -> None:
        if len(str(path).encode()) > LONGEST_PATH:
            raise BadInput(f"{path}: a socket path has at most {LONGEST_PATH} bytes; use a shorter directory")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((methods,))
            server.add_insecure_port(f"unix://{path.absolute()}")
        except (OSError, RuntimeError) as error:
            raise BadInput(f"cannot listen on {path}: is the kubelet's directory there and writable?") from error
        self._servers.append(server)
        await server.start()

    async def _info(self, request: Any, context: Any) -> Any:
        endpoint = str(self._socket.absolute())
        return reg.PluginInfo(type="DRAPlugin", name=self.name, endpoint=endpoint, supported_versions=VERSIONS)

    async def _notified(self, request: Any, context: Any) -> Any:
        if request.plugin_registered:
            log.info("registered driver=%s", self.name)
            self.registered.set()
        else:
            log.error("the kubelet did not register %s: %s", self.name, request.error)
        return reg.RegistrationStatusResponse()

    async def _prepare(self, request: Any, context: Any) -> Any:
        answer = dra.NodePrepareResourcesResponse()
        for claim in request.claims:
            found = await self._handler.prepare(ClaimKey(claim.namespace, claim.uid, claim.name))
            if isinstance(found, str):
                answer.claims[claim.uid].error = found
            else:
                answer.claims[claim.uid].devices.extend(_device(one) for one in found)
        return answer

    async def _unprepare(self, request: Any, context: Any) -> Any:
        answer = dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].error = await self._handler.unprepare(ClaimKey(claim.namespace, claim.uid, claim.name))
        return answer


def _device(one: PreparedDevice) -> Any:
    share = {"share_id": one.share} if one.share else {}
    return dra.Device(request_names=[one.request], pool_name=one.pool, device_name=one.device, cdi_device_ids=one.cdi, **share)
