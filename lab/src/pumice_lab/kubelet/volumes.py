"""Pod volumes as folders of this machine: emptyDir, hostPath, configMap, secret, downwardAPI, projected, and claims of such."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pumice.adapters.regular_files import replace_file
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Resource
from pumice.wire.kinds import CONFIGMAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS, SERVICE_ACCOUNTS
from pumice_lab.kubelet.environment import ConfigMissing, field_value, resource_value
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.runtime.spec import Mount
from pumice_lab.volume_sources import sources

POD_LIMIT = 64 * 1024 * 1024
"""Bytes that a pod's volumes show of API objects: one of a megabyte may be named at ten thousand paths."""
ROOT_CA = "kube-root-ca.crt"
_SHOWN = ("configMap", "secret", "downwardAPI", "projected")
"""Volumes that show API objects; a container may not write into them, as with the kubelet."""
_MADE_BY_TYPE = {"", "DirectoryOrCreate", "FileOrCreate"}
Json = Mapping[str, Any]
Files = dict[str, tuple[bytes, int]]  # path -> (content, mode)


class VolumeNotReady(Exception):
    """A volume cannot be set up now; tried again, event FailedMount."""


class ConfigReader:
    """Contents of ConfigMaps and Secrets for one pod (its metadata), None where missing."""

    def __init__(self, cluster: Cluster, clock: Clock, settings: KubeletSettings, pod: Json) -> None:
        self.cluster, self.clock, self.settings, self.pod = cluster, clock, settings, pod
        self.namespace = str(pod.get("namespace") or "default")
        self._tokens: dict[tuple[str, str, int], tuple[float, bytes]] = {}  # until when one is used, and the token

    async def config_map(self, name: str) -> dict[str, bytes] | None:
        obj = await self._get(CONFIGMAPS, name)
        if obj is None:
            authority = self.settings.ca_certificate
            return {"ca.crt": authority.read_bytes()} if name == ROOT_CA and authority else None
        data = {key: str(value).encode() for key, value in (obj.get("data") or {}).items()}
        return {**data, **_decoded(obj.get("binaryData") or {})}

    async def secret(self, name: str) -> dict[str, bytes] | None:
        obj = await self._get(SECRETS, name)
        return None if obj is None else _decoded(obj.get("data") or {})

    async def token(self, account: str, audience: str, lifetime: int) -> bytes:
        """A token of the pod's service account, which ends with the pod; a new one after four fifths of its seconds."""
        key = (account, audience, lifetime)
        fresh_until, token = self._tokens.get(key, (0.0, b""))
        if self.clock.now() < fresh_until:
            return token
        bound = {"kind": "Pod", "apiVersion": "v1", "name": self.pod["name"], "uid": self.pod["uid"]}
        spec: dict[str, Any] = {"expirationSeconds": max(600, lifetime), "boundObjectRef": bound}
        if audience:
            spec["audiences"] = [audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self.cluster.create(SERVICE_ACCOUNTS, body, self.namespace, subresource="token", name=account)
        token = str(answer["status"]["token"]).encode()
        self._tokens[key] = (self.clock.now() + 0.8 * max(600, lifetime), token)
        return token

    async def volume_of(self, claim: str) -> dict[str, Any]:
        """The spec of the PersistentVolume that the claim is bound to. Raises VolumeNotReady, also where the volume is not bound
        to the claim: whoever writes a claim may name any volume in it."""
        found = await self._get(PERSISTENT_VOLUME_CLAIMS, claim)
        if found is None:
            raise VolumeNotReady(f'persistentvolumeclaim "{claim}" not found')
        if found["metadata"].get("deletionTimestamp"):
            raise VolumeNotReady(f'persistentvolumeclaim "{claim}" is being deleted')
        name = found["spec"].get("volumeName") or ""
        volume = await self._get(PERSISTENT_VOLUMES, name) if name and found["status"].get("phase") == "Bound" else None
        spec: dict[str, Any] = volume["spec"] if volume else {}
        if (spec.get("claimRef") or {}).get("uid") != found["metadata"]["uid"]:
            raise VolumeNotReady(f'persistentvolumeclaim "{claim}" is not bound to a volume')
        return spec

    async def _get(self, resource: Resource, name: str) -> dict[str, Any] | None:
        try:
            return await self.cluster.get(resource, name, self.namespace if resource.namespaced else "")
        except ApiError as error:
            if error.code == 404:
                return None
            raise VolumeNotReady(f"{resource.plural} {name}: {error}") from error


def _decoded(table: Mapping[str, str]) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(value or "") for key, value in table.items()}
    except (binascii.Error, ValueError) as error:
        raise VolumeNotReady(f"not base64: {error}") from error


class PodVolumes:
    """The volumes of one pod below ``D/nodes/NODE/pods/UID``; ``remove`` deletes them with their content."""

    def __init__(self, settings: KubeletSettings, reader: ConfigReader, pod: Json, facts: Mapping[str, str]) -> None:
        self.settings, self.reader, self.pod, self.facts = settings, reader, pod, facts
        self.directory: Path = settings.pods_dir / pod["metadata"]["uid"]
        self._places: dict[str, Path] = {}
        self._read_only: set[str] = set()
        self._shown = 0

    async def set_up(self) -> None:
        """Raises VolumeNotReady."""
        self._shown = 0
        for volume in self.pod["spec"].get("volumes") or ():
            try:
                self._places[volume["name"]] = await self._set_up(volume)
            except (ConfigMissing, VolumeNotReady, ApiError, OSError) as error:
                raise VolumeNotReady(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from error

    @property
    def refreshable(self) -> bool:
        """True when some volume shows API objects that may change."""
        return any(kind in volume for volume in self.pod["spec"].get("volumes") or () for kind in _SHOWN)

    async def refresh(self, pod: Json) -> None:
        """Write what changed since; a source that is gone keeps its last content. Never raises."""
        self.pod = pod
        with contextlib.suppress(VolumeNotReady):
            await self.set_up()

    def mounts(self, container: Json) -> list[Mount]:
        return [self._mount(mount) for mount in container.get("volumeMounts") or ()]

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _mount(self, mount: Json) -> Mount:
        place = self._places[mount["name"]]
        if sub := mount.get("subPath"):
            base = place
            place = base / str(sub)
            if not place.resolve().is_relative_to(base.resolve()):
                raise ConfigMissing(f"subPath {sub!r} leads out of volume {mount['name']!r}")
            if not place.exists() and self._is_own(base):
                place.mkdir(parents=True)
        return Mount(str(place), mount["mountPath"], bool(mount.get("readOnly")) or mount["name"] in self._read_only)

    def _is_own(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.settings.data_dir.resolve())

    async def _set_up(self, volume: Json) -> Path:
        place = self.directory / "volumes" / str(volume["name"])
        if any(kind in volume for kind in _SHOWN):
            self._read_only.add(volume["name"])
        if "persistentVolumeClaim" in volume:
            return await self._claimed(volume["name"], volume["persistentVolumeClaim"])
        if "hostPath" in volume:
            return self._host_path(volume["hostPath"])
        if "emptyDir" in volume:
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o777)
            return place
        for key in ("configMap", "secret", "downwardAPI"):
            if key in volume:
                source = volume[key] or {}
                _write_files(place, await self._files(key, source, source.get("defaultMode")))
                return place
        if "projected" in volume:
            projected, files = volume["projected"] or {}, Files()
            for source in projected.get("sources") or ():
                for key, value in source.items():
                    files.update(await self._files(key, value or {}, projected.get("defaultMode")))
            _write_files(place, files)
            return place
        kind = next((key for key in volume if key != "name"), "nothing")
        raise VolumeNotReady(f"volumes of kind {kind} are not supported by this cluster")

    async def _claimed(self, name: str, source: Json) -> Path:
        """The folder of a PersistentVolume of this machine."""
        spec = await self.reader.volume_of(source["claimName"])
        if source.get("readOnly"):
            self._read_only.add(name)
        if spec.get("volumeMode") == "Block":
            raise VolumeNotReady("block volumes are not supported by this cluster")
        if "local" in spec:
            return self._host_path({"path": spec["local"]["path"], "type": "Directory"})
        if "hostPath" in spec:
            return self._host_path(spec["hostPath"])
        kind = next(iter(sources(spec)), "nothing")
        raise VolumeNotReady(f"persistent volumes of kind {kind} are not supported by this cluster")

    def _host_path(self, source: Json) -> Path:
        """The host's own path; one that the machine lacks is this node's own folder in the data dir."""
        path, kind = host_path(self.settings, source["path"]), source.get("type") or ""
        if not path.exists():
            if not self._is_own(path):
                path = self.settings.directory / "root" / source["path"].lstrip("/")
            if not path.exists():
                if kind not in _MADE_BY_TYPE:
                    raise VolumeNotReady(f"hostPath type check failed: {source['path']} is not a {kind.lower()}")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch() if kind == "FileOrCreate" else path.mkdir()
        return path

    async def _files(self, kind: str, source: Json, default_mode: int | None) -> Files:
        mode = source.get("defaultMode") or default_mode or 0o644
        match kind:
            case "configMap" | "secret":
                return await self._config_files(kind, source, mode)
            case "downwardAPI":
                return self._downward_files(source, mode)
            case "serviceAccountToken":
                account = self.pod["spec"].get("serviceAccountName") or "default"
                token = await self.reader.token(account, source.get("audience") or "",
                                                int(source.get("expirationSeconds") or 3600))
                return {source["path"]: (token, mode)}
        raise VolumeNotReady(f"projected source {kind} is not supported by this cluster")

    async def _config_files(self, kind: str, source: Json, mode: int) -> Files:
        name = source.get("secretName") or source.get("name") or ""
        data = await (self.reader.secret(name) if kind == "secret" else self.reader.config_map(name))
        if data is None:
            if source.get("optional"):
                return {}
            raise ConfigMissing(f'{kind.lower()} "{name}" not found')
        items = source.get("items")
        if not items:
            self._count(sum(map(len, data.values())))
            return {key: (value, mode) for key, value in data.items()}
        out: Files = {}
        for item in items:
            if item["key"] in data:
                self._count(len(data[item["key"]]))
                out[item["path"]] = (data[item["key"]], item.get("mode") or mode)
            elif not source.get("optional"):
                raise ConfigMissing(f"references non-existent {kind.lower()} key: {item['key']}")
        return out

    def _count(self, size: int) -> None:
        self._shown += size
        if self._shown > POD_LIMIT:
            raise VolumeNotReady(f"the volumes of the pod show more than {POD_LIMIT} bytes of API objects")

    def _downward_files(self, source: Json, mode: int) -> Files:
        out: Files = {}
        for item in source.get("items") or ():
            if ref := item.get("fieldRef"):
                text = field_value(self.pod, ref["fieldPath"], self.facts)
            else:
                text = resource_value({}, self.pod, item["resourceFieldRef"])
            self._count(len(text))
            out[item["path"]] = (text.encode(), item.get("mode") or mode)
        return out


def host_path(settings: KubeletSettings, path: str) -> Path:
    """A host path as this node has it: its kubelet directory and further prefixes lie in the data dir."""
    table = {"/var/lib/kubelet": str(settings.kubelet_dir), **settings.host_paths}
    for prefix, place in sorted(table.items(), key=lambda row: -len(row[0])):
        if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
            return Path(place + path[len(prefix.rstrip("/")) :])
    return Path(path)


def _write_files(place: Path, files: Files) -> None:
    """Make ``place`` hold exactly these files. The folder stays the same one: running containers have it mounted."""
    place.mkdir(parents=True, exist_ok=True)
    for name, (content, mode) in files.items():
        path = place / name
        if not Path(os.path.normpath(path)).is_relative_to(place):
            raise VolumeNotReady(f"{name!r} leads out of the volume")
        path.parent.mkdir(parents=True, exist_ok=True)
        if _holds(path, content):
            continue
        replace_file(path, content, mode, draft=path.with_name(f".{path.name}.new"), durable=False)
    wanted = {place / name for name in files}
    for path in [p for p in place.rglob("*") if p.is_file() and p not in wanted]:
        path.unlink()


def _holds(path: Path, content: bytes) -> bool:
    """Return whether a file has this content. Whatever else somebody has put there is neither opened nor read: a pipe would be
    waited for, a file without end fill the memory."""
    try:
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False
