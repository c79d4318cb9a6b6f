"""Rules of the Pod Security Standards, one function each: pod in, refusal out.

Rules and words: k8s.io/pod-security-admission 0.36, policy/check_*.go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

Json = Mapping[str, Any]


class Refusal(NamedTuple):
    reason: str
    detail: str


Check = Callable[[Json, Json], Refusal | None]
"""Metadata and spec of a pod to what it is refused for."""

_NO: Json = {}


def containers_of(spec: Json) -> Iterator[Json]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _context(of: Json) -> Json:
    found: Json = of.get("securityContext") or _NO
    return found


def _option(of: Json, name: str, field: str) -> Any:
    """A field of an option of a security context, None where that is not there."""
    return (_context(of).get(name) or _NO).get(field)


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _counted(one: str, many: str, words: Collection[str]) -> str:
    return one if len(words) == 1 else many


def _containers(names: list[str]) -> str:
    return f"{_counted('container', 'containers', names)} {_quoted(names)}"


def _setters(pod: bool, names: list[str]) -> str:
    return " and ".join([*(["pod"] if pod else []), *([_containers(names)] if names else [])])


def _named(spec: Json, bad: Callable[[Json], Any]) -> list[str]:
    return [str(each.get("name", "")) for each in containers_of(spec) if bad(each)]


# -- baseline ----------------------------------------------------------------------------------------------------------


def app_armor(metadata: Json, spec: Json) -> Refusal | None:
    def bad(of: Json) -> bool:
        profile = _context(of).get("appArmorProfile")
        return profile is not None and profile.get("type") not in ("RuntimeDefault", "Localhost")

    names, pod = _named(spec, bad), bad(spec)
    values = sorted({str(_option(of, "appArmorProfile", "type") or "") for of in (spec, *containers_of(spec)) if bad(of)})
    prefix = "container.apparmor.security.beta.kubernetes.io/"
    notes = sorted(f"{key}={json.dumps(value)}" for key, value in (metadata.get("annotations") or _NO).items()
                   if key.startswith(prefix) and value not in ("", "runtime/default") and not value.startswith("localhost/"))
    values += notes
    if not values:
        return None
    said = [part for part in (_setters(pod, names), _counted("annotation", "annotations", notes) if notes else "") if part]
    return Refusal(_counted("forbidden AppArmor profile", "forbidden AppArmor profiles", values),
                   f"{' and '.join(said)} must not set AppArmor profile type to {_quoted(values)}")  # fmt: skip


_DEFAULT_CAPABILITIES: Final = frozenset((
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
    "SETPCAP", "SETUID", "SYS_CHROOT"))  # fmt: skip


def _added(of: Json, allowed: Collection[str]) -> list[str]:
    return [word for word in _option(of, "capabilities", "add") or () if word not in allowed]


def _must_not_add(spec: Json, allowed: Collection[str]) -> str:
    names = _named(spec, lambda each: _added(each, allowed))
    words = sorted({word for each in containers_of(spec) for word in _added(each, allowed)})
    return f"{_containers(names)} must not include {_quoted(words)} in securityContext.capabilities.add" if names else ""


def default_capabilities(metadata: Json, spec: Json) -> Refusal | None:
    detail = _must_not_add(spec, _DEFAULT_CAPABILITIES)
    return Refusal("non-default capabilities", detail) if detail else None


def host_namespaces(metadata: Json, spec: Json) -> Refusal | None:
    found = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return Refusal("host namespaces", ", ".join(found)) if found else None


def host_paths(metadata: Json, spec: Json) -> Refusal | None:
    names = [str(volume.get("name", "")) for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Refusal("hostPath volumes", f"{_counted('volume', 'volumes', names)} {_quoted(names)}") if names else None


def host_ports(metadata: Json, spec: Json) -> Refusal | None:
    def ports(of: Json) -> list[str]:
        return [str(port["hostPort"]) for port in of.get("ports") or () if port.get("hostPort")]

    names, found = _named(spec, ports), sorted({port for each in containers_of(spec) for port in ports(each)})
    detail = (f"{_containers(names)} {_counted('uses', 'use', names)} {_counted('hostPort', 'hostPorts', found)} "
              f"{', '.join(found)}")  # fmt: skip
    return Refusal("hostPort", detail) if names else None


def host_probes(metadata: Json, spec: Json) -> Refusal | None:
    def hosts(of: Json) -> list[str]:
        life = of.get("lifecycle") or _NO
        asked = [*(of.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")), life.get("postStart"),
                 life.get("preStop")]  # fmt: skip
        ways = [each[way] for each in asked if each for way in ("httpGet", "tcpSocket") if each.get(way)]
        return [way["host"] for way in ways if way.get("host")]

    names, found = sorted(set(_named(spec, hosts))), sorted({host for each in containers_of(spec) for host in hosts(each)})
    one, many = "probe or lifecycle host", "probe or lifecycle hosts"
    detail = f"{_containers(names)} {_counted('uses', 'use', names)} {_counted(one, many, found)} {_quoted(found)}"
    return Refusal(one, detail) if names else None


def privileged(metadata: Json, spec: Json) -> Refusal | None:
    names = _named(spec, lambda each: _context(each).get("privileged"))
    return Refusal("privileged", f"{_containers(names)} must not set securityContext.privileged=true") if names else None


def proc_mount(metadata: Json, spec: Json) -> Refusal | None:
    def other(of: Json) -> str | None:
        found = _context(of).get("procMount")
        return None if found in (None, "Default") else str(found)

    names = _named(spec, lambda each: other(each) is not None)
    words = sorted({word for each in containers_of(spec) if (word := other(each)) is not None})
    detail = f"{_containers(names)} must not set securityContext.procMount to {_quoted(words)}"
    return Refusal("procMount", detail) if names else None


def se_linux(types: Collection[str], metadata: Json, spec: Json) -> Refusal | None:
    def bad(of: Json) -> bool:
        options = _context(of).get("seLinuxOptions") or _NO
        return bool((options.get("type") or "") not in types or options.get("user") or options.get("role"))

    pod, names = bad(spec), _named(spec, bad)
    everybody = [_context(of).get("seLinuxOptions") or _NO for of in (spec, *containers_of(spec))]
    words = sorted({options["type"] for options in everybody if (options.get("type") or "") not in types})
    said = [f"{_counted('type', 'types', words)} {_quoted(words)}"] if words else []
    said += [f"{field} may not be set" for field in ("user", "role") if any(options.get(field) for options in everybody)]
    detail = f"{_setters(pod, names)} set forbidden securityContext.seLinuxOptions: {'; '.join(said)}"
    return Refusal("seLinuxOptions", detail) if said else None


def seccomp_notes(metadata: Json, spec: Json) -> Refusal | None:
    """As it was said before there were fields for it."""
    notes = metadata.get("annotations") or _NO
    prefix = "seccomp.security.alpha.kubernetes.io"
    keys = {f"{prefix}/pod", *(f"container.{prefix}/{each.get('name', '')}" for each in containers_of(spec))}
    found = sorted(f"{key}={json.dumps(notes[key])}" for key in keys & notes.keys()
                   if notes[key] not in ("runtime/default", "docker/default") and not notes[key].startswith("localhost/"))
    detail = f"forbidden {_counted('annotation', 'annotations', found)} {', '.join(found)}"
    return Refusal("seccompProfile", detail) if found else None


def seccomp(metadata: Json, spec: Json) -> Refusal | None:
    def bad(of: Json) -> bool:
        profile = _context(of).get("seccompProfile")
        return profile is not None and profile.get("type") not in ("Localhost", "RuntimeDefault")

    pod, names = bad(spec), _named(spec, bad)
    words = sorted({str(_option(of, "seccompProfile", "type") or "") for of in (spec, *containers_of(spec)) if bad(of)})
    detail = f"{_setters(pod, names)} must not set securityContext.seccompProfile.type to {_quoted(words)}"
    return Refusal("seccompProfile", detail) if words else None


SYSCTLS: Final = ("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
                  "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start")  # fmt: skip
SYSCTLS_27: Final = (*SYSCTLS, "net.ipv4.ip_local_reserved_ports")
SYSCTLS_29: Final = (*SYSCTLS_27, "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
                     "net.ipv4.tcp_keepalive_probes")  # fmt: skip
SYSCTLS_32: Final = (*SYSCTLS_29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
CONTAINER_TYPES: Final = ("", "container_t", "container_init_t", "container_kvm_t")


def sysctls(allowed: Collection[str], metadata: Json, spec: Json) -> Refusal | None:
    found = [name for each in _context(spec).get("sysctls") or () if (name := str(each.get("name", ""))) not in allowed]
    return Refusal("forbidden sysctls", ", ".join(found)) if found else None


def windows_host_process(metadata: Json, spec: Json) -> Refusal | None:
    pod, names = bool(_option(spec, "windowsOptions", "hostProcess")), _named(
        spec, lambda each: _option(each, "windowsOptions", "hostProcess"))  # fmt: skip
    detail = f"{_setters(pod, names)} must not set securityContext.windowsOptions.hostProcess=true"
    return Refusal("hostProcess", detail) if pod or names else None


# -- restricted --------------------------------------------------------------------------------------------------------


def no_escalation(metadata: Json, spec: Json) -> Refusal | None:
    names = _named(spec, lambda each: _context(each).get("allowPrivilegeEscalation") is not False)
    detail = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Refusal("allowPrivilegeEscalation != false", detail) if names else None


def all_dropped(metadata: Json, spec: Json) -> Refusal | None:
    names = _named(spec, lambda each: "ALL" not in (_option(each, "capabilities", "drop") or ()))
    missing = f'{_containers(names)} must set securityContext.capabilities.drop=["ALL"]' if names else ""
    said = [part for part in (missing, _must_not_add(spec, ("NET_BIND_SERVICE",))) if part]
    return Refusal("unrestricted capabilities", "; ".join(said)) if said else None


_ALLOWED_VOLUMES: Final = frozenset(("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
                                     "projected", "secret"))  # fmt: skip
_KNOWN_VOLUMES: Final = frozenset((
    "hostPath",
    "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd", "flexVolume",
    "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk",
    "portworxVolume",
    "scaleIO", "storageos"))  # fmt: skip


def volume_types(metadata: Json, spec: Json) -> Refusal | None:
    bad = [volume for volume in spec.get("volumes") or () if _ALLOWED_VOLUMES.isdisjoint(volume)]
    names = [str(volume.get("name", "")) for volume in bad]
    types = sorted({next(iter(_KNOWN_VOLUMES & volume.keys()), "unknown") for volume in bad})
    one, many = "restricted volume type", "restricted volume types"
    detail = (f"{_counted('volume', 'volumes', names)} {_quoted(names)} {_counted('uses', 'use', names)} "
              f"{_counted(one, many, types)} {_quoted(types)}")  # fmt: skip
    return Refusal("restricted volume types", detail) if bad else None


def not_root(metadata: Json, spec: Json) -> Refusal | None:
    own, reason = _context(spec).get("runAsNonRoot"), "runAsNonRoot != true"
    names = _named(spec, lambda each: _context(each).get("runAsNonRoot") is False)
    if own is False or names:
        return Refusal(reason, f"{_setters(own is False, names)} must not set securityContext.runAsNonRoot=false")
    names = [] if own else _named(spec, lambda each: _context(each).get("runAsNonRoot") is None)
    return Refusal(reason, f"pod or {_containers(names)} must set securityContext.runAsNonRoot=true") if names else None


def not_user_zero(metadata: Json, spec: Json) -> Refusal | None:
    pod, names = _context(spec).get("runAsUser") == 0, _named(spec, lambda each: _context(each).get("runAsUser") == 0)
    return Refusal("runAsUser=0", f"{_setters(pod, names)} must not set runAsUser=0") if pod or names else None


def seccomp_set(metadata: Json, spec: Json) -> Refusal | None:
    if refused := seccomp(metadata, spec):
        return refused
    own = _context(spec).get("seccompProfile") is not None
    names = [] if own else _named(spec, lambda each: _context(each).get("seccompProfile") is None)
    detail = f'pod or {_containers(names)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Refusal("seccompProfile", detail) if names else None


def but_windows(check: Check) -> Check:
    return partial(_unless, check, lambda spec: (spec.get("os") or _NO).get("name") == "windows")


def but_own_users(check: Check) -> Check:
    """Return the check for pods without a user namespace of their own: in one, root is nobody outside."""
    return partial(_unless, check, lambda spec: spec.get("hostUsers") is False)


def _unless(check: Check, spared: Callable[[Json], bool], metadata: Json, spec: Json) -> Refusal | None:
    return None if spared(spec) else check(metadata, spec)
