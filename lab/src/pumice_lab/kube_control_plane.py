"""The real control plane as child processes: etcd, kube-apiserver and kube-controller-manager.

The binaries are those of ``make kube``, or any in the directory that KUBEBUILDER_ASSETS names. Flags: ADR 120.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pumice.adapters.regular_files import replace_file
from pumice.model.errors import BadInput, Unavailable
from pumice.ports.clock import Clock
from pumice_lab.free_ports import free_port
from pumice_lab.pki import Pki

log = logging.getLogger("pumice.cluster")
READY_SECONDS = 60.0
PORT_TRIES = 3
"""A port that was free when we looked may be somebody else's a second later, when the program takes it."""


@dataclass(slots=True)
class KubeControlPlane:
    """Running processes of one control plane. ``server`` is the API server's URL."""

    server: str
    logs: Path
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def stop(self) -> None:
        """Stop the API server before etcd: without etcd it lingers for over a minute and holds its port."""
        for name in ("kube-controller-manager", "kube-scheduler", "kube-apiserver", "etcd"):
            process = self.processes.pop(name, None)
            if process is None or process.returncode is not None:
                continue
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 5)
            except TimeoutError:
                process.kill()
                await process.wait()


def find_assets() -> Path:
    """The directory with the binaries. Raises BadInput that says how to get one."""
    named = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not named:
        raise BadInput("the real control plane needs its binaries: run `export KUBEBUILDER_ASSETS=$(make -s kube)`")
    directory = Path(named)
    missing = [n for n in ("etcd", "kube-apiserver", "kube-controller-manager") if not (directory / n).exists()]
    if missing:
        raise BadInput(f"KUBEBUILDER_ASSETS={named}: {missing[0]} is not there; `make kube` builds it")
    return directory


async def start(assets: Path, data: Path, logs: Path, pki: Pki, *, clock: Clock, address: str = "127.0.0.1",
                port: int = 0, users: Sequence[str] = (), controller_manager: bool = True, service_accounts: bool = False,
                admission: Sequence[str] = (), api_flags: Sequence[str] = ()) -> KubeControlPlane:
    """Start everything and wait until /readyz says ok. ``users`` are further lines of the token file.

    With ``service_accounts`` pods get a token of theirs, and wait for it; ``api_flags`` are further flags of kube-apiserver.

    Raises Unavailable with the tail of the failing component's log.
    """
    for tries_left in reversed(range(PORT_TRIES)):
        try:
            return await _start(assets, data, logs, pki, clock, address, port or free_port(address), users, controller_manager,
                                service_accounts, admission, api_flags)  # fmt: skip
        except Unavailable as error:
            if not tries_left or "address already in use" not in str(error):
                raise
            log.warning("%s; trying other ports", error)
    raise AssertionError("unreachable: the last try returns or raises")


async def _start(assets: Path, data: Path, logs: Path, pki: Pki, clock: Clock, address: str, port: int, users: Sequence[str],
                 controller_manager: bool, service_accounts: bool, admission: Sequence[str],
                 api_flags: Sequence[str]) -> KubeControlPlane:
    logs.mkdir(parents=True, exist_ok=True)
    etcd_port, peer_port = free_port(), free_port()
    plane = KubeControlPlane(f"https://{address}:{port}", logs)
    tokens = pki.directory / "tokens.csv"
    tokens.write_text("\n".join([f'{pki.admin_token},admin,admin,"system:masters"', *users]) + "\n")
    tokens.chmod(0o600)
    try:
        await _spawn(plane, "etcd", assets, [
            f"--data-dir={data / 'etcd'}", "--unsafe-no-fsync=true", "--log-level=warn",
            f"--listen-client-urls=http://127.0.0.1:{etcd_port}", f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
        ])  # fmt: skip
        await _spawn(plane, "kube-apiserver", assets, [
            f"--etcd-servers=http://127.0.0.1:{etcd_port}", f"--bind-address={address}", f"--secure-port={port}",
            f"--advertise-address={address}", f"--cert-dir={data / 'apiserver'}",
            f"--tls-cert-file={pki.server_cert}", f"--tls-private-key-file={pki.server_key}",
            f"--client-ca-file={pki.ca}", f"--kubelet-certificate-authority={pki.ca}",
            f"--kubelet-client-certificate={pki.server_cert}", f"--kubelet-client-key={pki.server_key}",
            f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki.service_account_key}",
            f"--service-account-signing-key-file={pki.service_account_key}",
            f"--enable-admission-plugins={','.join(['NodeRestriction', *admission])}",
            f"--disable-admission-plugins={'' if service_accounts else 'ServiceAccount,'}TaintNodesByCondition",
            "--allow-privileged=true",  # as kubeadm has it; the NPUs' plugins are
            "--endpoint-reconciler-type=none", "--kubelet-preferred-address-types=InternalIP,Hostname", *api_flags,
        ])  # fmt: skip
        await _until_ready(plane, pki, clock)
        if controller_manager:
            await _spawn(plane, "kube-controller-manager", assets, [
                f"--kubeconfig={kubeconfig(pki, plane.server, pki.directory / 'admin.kubeconfig')}",
                "--leader-elect=false", "--use-service-account-credentials=false", "--secure-port=0",
                f"--service-account-private-key-file={pki.service_account_key}", f"--root-ca-file={pki.ca}",
                # Nodes of one machine do not vanish: tainting them would only add noise to what is tried out here.
                "--controllers=*,-nodeipam,-route,-service,-cloud-node-lifecycle,-bootstrapsigner,-tokencleaner",
            ])  # fmt: skip
    except BaseException:
        await plane.stop()
        raise
    return plane


def kubeconfig(pki: Pki, server: str, path: Path) -> Path:
    """Write a kubeconfig of the cluster's admin and return its path."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "pumice",
        "clusters": [{"name": "pumice", "cluster": {"server": server, "certificate-authority-data": _base64(pki.ca)}}],
        "users": [{"name": "admin", "user": {"token": pki.admin_token}}],
        "contexts": [{"name": "pumice", "context": {"cluster": "pumice", "user": "admin", "namespace": "default"}}],
    }  # fmt: skip
    replace_file(path, yaml.safe_dump(config, sort_keys=False).encode(), 0o600, durable=False)
    return path


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def _spawn(plane: KubeControlPlane, name: str, assets: Path, arguments: Sequence[str]) -> None:
    with open(plane.logs / f"{name}.log", "ab") as log:
        plane.processes[name] = await asyncio.create_subprocess_exec(
            assets / name, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True)


async def _until_ready(plane: KubeControlPlane, pki: Pki, clock: Clock) -> None:
    context = ssl.create_default_context(cafile=str(pki.ca))
    headers = {"Authorization": f"Bearer {pki.admin_token}"}
    deadline = clock.monotonic() + READY_SECONDS
    while clock.monotonic() < deadline:
        for name, process in plane.processes.items():
            if process.returncode is not None:
                raise Unavailable(f"{name} ended with code {process.returncode}: {_tail(plane.logs / f'{name}.log')}")
        if await asyncio.to_thread(_answers, plane.server + "/readyz", headers, context):
            return
        await clock.sleep(0.1)
    raise Unavailable(f"kube-apiserver was not ready within {READY_SECONDS:.0f} s: "
                      f"{_tail(plane.logs / 'kube-apiserver.log')}")


def _answers(url: str, headers: Mapping[str, str], context: ssl.SSLContext) -> bool:
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        urllib.request.urlopen(request, timeout=2, context=context).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "its log is empty"
