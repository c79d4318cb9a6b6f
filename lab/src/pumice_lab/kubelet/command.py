"""From a container of a pod to the spec that a runtime starts. Pure."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pumice_lab.kubelet.environment import expand_all
from pumice_lab.kubelet.settings import KubeletSettings

Json = Mapping[str, Any]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN_FOLDER = Path(sys.executable).parent
"""Where ``pumice`` is installed, however it was called: containers of this machine find it there."""
SHELL = ("sh",)  # who brings a terminal wants one
IDLE = ("sleep", "infinity")  # images are not unpacked, so their default command is unknown


def is_own_image(image: str, names: Sequence[str]) -> bool:
    """True for Pumice's own image: the full name, or its last part, without tag and digest."""
    bare = image.partition("@")[0]
    head, slash, tail = bare.rpartition("/")
    tail = tail.partition(":")[0]
    return f"{head}{slash}{tail}" in names or tail in names or image in names


def base_environment(settings: KubeletSettings, pod: Json, container: Json, pod_ip: str,
                     api: tuple[str, int] | None = None) -> dict[str, str]:
    """Return the environment of every container, below everything the pod or a plugin says.

    ``api``: where the API server is in a network of the pod's own; None in the machine's."""
    host, port = api or (settings.api_host, settings.api_port)
    home = "/root" if os.geteuid() == 0 else os.path.expanduser("~")
    out = {"PATH": PATH, "HOSTNAME": hostname(pod), "HOME": home, **settings.container_env}
    if str(OWN_FOLDER) not in out["PATH"].split(":"):  # behind all else: it may hold a python of its own
        out["PATH"] += f":{OWN_FOLDER}"
    if container.get("tty"):
        out["TERM"] = "xterm"
    if settings.api_host:
        out |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port),
                "KUBERNETES_PORT": f"tcp://{host}:{port}"}
    if is_own_image(container.get("image") or "", settings.pumice_images):
        out["PATH"] = f"{OWN_FOLDER}:{PATH}"
        out["NODE_NAME"] = settings.node
        out["PUMICE_BIND_ADDRESS"] = pod_ip  # where all share the machine's network, each listens on its own
    return out


def command_line(settings: KubeletSettings, container: Json, env: Mapping[str, str]) -> tuple[str, ...]:
    """command and args with ``$(NAME)`` expanded. Without either a container sleeps. Raises StartFailed when they are too long.

    Pumice's own image has the entry point ``pumice``.
    """
    command = container.get("command") or ()
    words = expand_all((*command, *(container.get("args") or ())), env)
    command, args = words[: len(command)], words[len(command) :]
    if command:
        return (*command, *args)
    if is_own_image(container.get("image") or "", settings.pumice_images):
        return (*own_program(), *args)
    return tuple(args) or (SHELL if container.get("stdin") and container.get("tty") else IDLE)


def own_program() -> tuple[str, ...]:
    """The installed ``pumice`` command."""
    script = OWN_FOLDER / "pumice"
    return (str(script),) if script.exists() else (sys.executable, "-c", "from pumice.cli.main import main; main()")


def hostname(pod: Json) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def hosts_file(pod: Json, pod_ip: str, machine: str, api: str = "") -> str:
    """/etc/hosts of a pod: the machine's, the pod's own name, hostAliases, and the API server's names if it is at ``api``."""
    lines = [machine.rstrip("\n"), f"{pod_ip}\t{hostname(pod)}"]
    if api:
        lines.append(f"{api}\tkubernetes.default.svc.cluster.local kubernetes.default.svc kubernetes.default kubernetes")
    lines += [f"{alias['ip']}\t{' '.join(alias.get('hostnames') or ())}" for alias in pod["spec"].get("hostAliases") or ()]
    return "\n".join(lines) + "\n"


def resolv_conf(server: str, machine: str) -> str:
    """/etc/resolv.conf of a pod: the machine's search list and options, and its own name server."""
    kept = [line for line in machine.splitlines() if line.split()[:1] and line.split()[0] in ("search", "domain", "options")]
    return "\n".join([f"nameserver {server}", *kept]) + "\n"


def user_and_group(settings: KubeletSettings, pod: Json, container: Json) -> tuple[int | None, int | None]:
    """Return the user of the container. Pumice's own image is the installed package, which may be readable by its owner only,
    so it runs as the cluster itself does, whatever its securityContext asks for."""
    if is_own_image(container.get("image") or "", settings.pumice_images):
        return None, None
    context = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    return context.get("runAsUser"), context.get("runAsGroup")
