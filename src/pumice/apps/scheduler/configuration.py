"""Which configuration the scheduler goes by: a file or a ConfigMap, and the device ConfigMap that it names.

A configuration that cannot be used changes nothing: the last good one stays and the log says why (spec volcano-core 3.3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pumice.apps.scheduler.informers import Informers
from pumice.engine.engine import Engine
from pumice.model.errors import BadInput
from pumice.wire.device_config import DeviceConfig, parse_device_config
from pumice.wire.names import DEVICE_CONFIG_KEY, SCHEDULER_CONF_KEY
from pumice.wire.scheduler_conf import SchedulerConf, parse_scheduler_conf

log = logging.getLogger("pumice.scheduler")

FILE_LOOK = 1.0
"""Seconds between two looks at the file."""


@dataclass(slots=True)
class Configuration:
    """``file`` is read and looked at again; without one the ConfigMap ``configmap`` (namespace/name) is watched.

    ``conf`` is the configuration in force: at first the built-in one.
    """

    engine: Engine
    informers: Informers
    conf: SchedulerConf
    file: Path | None = None
    configmap: str = ""
    strict: bool = False
    fallback: bool = True
    """Whether a first file that cannot be used leaves the built-in configuration in force (upstream's way)."""
    refused: int = 0
    """Configurations that could not be used."""
    _text: str | None = None
    _devices: DeviceConfig | None = None
    _device_map: str = ""
    _device_watch: asyncio.Task[None] | None = field(default=None, repr=False)

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """The endless work of following the configuration; what comes from ConfigMaps is waited for before the first
        decision."""
        jobs: list[Coroutine[Any, Any, None]] = []
        if self.file is not None:
            jobs.append(self._watch_file())
        elif self.configmap:
            self.informers.unsynced.add("configuration")
            jobs.append(self.informers.watch_configmap("configuration", self.configmap, self._on_map))
        self.informers.unsynced.add("devices")
        jobs.append(self._watch_devices())
        return jobs

    def read_file(self, *, first: bool = False) -> None:
        """Read the file, if there is one. Raises BadInput only the first time: when it cannot be read at all, or cannot be
        used although it has to be (``strict``, no ``fallback``)."""
        if self.file is None:
            return
        try:
            text = self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or error
            if first:
                raise BadInput(f"{self.file}: cannot be read: {cause}") from None
            log.error("configuration kept: %s cannot be read: %s", self.file, cause)
            return
        if text != self._text:
            self._text = text
            self._take(text, str(self.file), first=first)

    def _take(self, text: str, source: str, *, first: bool = False) -> None:
        try:
            conf = parse_scheduler_conf(text, source=source, strict=self.strict)
            remarks = self.engine.configure(conf, self._devices)
        except BadInput as error:
            self.refused += 1
            if first and (self.strict or not self.fallback):
                raise
            log.error("%s: %s", "the built-in configuration is used" if first else "configuration kept", error)
            return
        self.conf = conf
        for remark in remarks:
            log.warning("configuration: %s", remark)
        log.info("configuration source=%s actions=%s", source, ",".join(conf.actions))
        self._follow_device_map()
        self.informers.wake.set()

    async def _watch_file(self) -> None:
        while True:
            await self.informers.clock.sleep(FILE_LOOK)
            self.read_file()

    def _on_map(self, data: dict[str, str] | None) -> None:
        text = (data or {}).get(SCHEDULER_CONF_KEY)
        if text is None:
            log.warning("configmap %s has no key %s; configuration kept", self.configmap, SCHEDULER_CONF_KEY)
        elif text != self._text:
            self._text = text
            self._take(text, f"configmap {self.configmap}")

    # -- devices ------------------------------------------------------------------------------------------------

    def _on_device_map(self, data: dict[str, str] | None) -> None:
        text = (data or {}).get(DEVICE_CONFIG_KEY)
        try:
            config = None if text is None else parse_device_config(text)
        except BadInput as error:
            self.refused += 1
            log.error("device configuration kept: configmap %s: %s", self._device_map, error)
            return
        if config != self._devices:
            self._devices = config
            for remark in self.engine.configure(self.conf, config):
                log.warning("configuration: %s", remark)
            self.informers.wake.set()

    async def _watch_devices(self) -> None:
        self._follow_device_map()
        try:
            await asyncio.Event().wait()
        finally:
            if self._device_watch is not None:
                self._device_watch.cancel()

    def _follow_device_map(self) -> None:
        """Watch the device ConfigMap that the configuration names."""
        settings = self.engine.settings
        name = f"{settings.configmap_namespace}/{settings.configmap}"
        if name == self._device_map:
            return
        self._device_map = name
        if self._device_watch is not None:
            self._device_watch.cancel()
        watch = self.informers.watch_configmap("devices", name, self._on_device_map)
        self._device_watch = asyncio.get_running_loop().create_task(watch)
