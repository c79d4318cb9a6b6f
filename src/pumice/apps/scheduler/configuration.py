"""The configuration that the scheduler goes by: a file or a ConfigMap, and the device ConfigMap that it names.

A document that cannot be used changes nothing: the last good one stays (Volcano pkg/scheduler/util.go). Where there is none
yet, the
scheduler is unready and places nothing, for the built-in configuration knows no cards: a pod that asks for a share would be
bound without one and die. No document at all means the built-in configuration. Whatever is refused is said in the log, by an
event on the ConfigMap, on /readyz and in the metrics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pumice.apps.scheduler.informers import REPORTS, Informers
from pumice.devices.protocol import ReportSource
from pumice.devices.registry import remarks_on
from pumice.effects.tasks import run_until
from pumice.effects.vocabulary import Event, SchedulerEffect, Severity
from pumice.model.errors import BadInput
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import Configure, sources_of
from pumice.wire import kinds
from pumice.wire.device_config import DeviceConfig
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.names import DEVICE_CONFIG_KEY, LAST_GOOD, SCHEDULER_CONF_KEY, SCHEDULER_NAMES_KEY
from pumice.wire.objects import ConfigMap
from pumice.wire.scheduler_conf import DEFAULT_CONF, SchedulerConf, parse_scheduler_conf

log = logging.getLogger("pumice.scheduler")


FILE_LOOK = 1.0
"""Seconds between two looks at the file."""


@dataclass(slots=True)
class Document:
    """One of the two documents, and whether the newest of its texts is in force."""

    what: str
    source: str = ""
    refusal: str = ""
    """Why the newest text is not in force; empty while it is."""
    good: bool = False
    """Some text of it was taken."""
    shown: ConfigMap | None = None
    """Where it was read."""

    @property
    def awaited(self) -> str:
        """The name under which decisions wait for the first good text."""
        return f"a valid {self.what}"


@dataclass(slots=True)
class Configuration:
    """The scheduler's configuration, followed. ``file`` is read and looked at again; without one the ConfigMap ``configmap``
    (namespace/name) is watched.

    ``conf`` is the configuration in force: at first the built-in one.
    """

    engine: Engine
    informers: Informers
    conf: SchedulerConf
    file: Path | None = None
    configmap: str = ""
    strict: bool = False
    unready: bool = True
    """True if a first file that cannot be used is waited out; else it is an error (--disable-default-scheduler-config)."""
    report: Callable[[SchedulerEffect], None] = lambda effect: None
    refused: int = 0
    """Documents that could not be used."""
    own: Document = field(default_factory=lambda: Document("configuration"))
    devices: Document = field(default_factory=lambda: Document("device configuration"))
    last_good: LastGood | None = None
    _text: str | None = None
    _good_text: str = DEFAULT_CONF
    _device_text: str | None = None
    _device_config: DeviceConfig | None = None
    _renamed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _reports: tuple[ReportSource, ...] = ()
    _others: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set when others than ``_reports`` are to be followed."""

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """The endless work of following the configuration; what comes from ConfigMaps is waited for before the first
        decision."""
        jobs: list[Coroutine[Any, Any, None]] = []
        if self.file is not None:
            jobs.append(self._watch_file())
        elif self.configmap:
            self.own.source = f"configmap {self.configmap}"
            self.last_good = LastGood(self.informers.cluster, self.informers.clock, self.configmap)
            self._keep(SCHEDULER_NAMES_KEY, " ".join(sorted(self.engine.state.pods.scheduler_names)))
            self.informers.unsynced.add("configuration")
            jobs.append(self.informers.watch_configmap("configuration", self.configmap, self._on_map))
            jobs.append(self.last_good.run())
        self.informers.unsynced.add("devices")
        jobs.append(self._watch_devices())
        jobs.append(self._watch_reports())
        return jobs

    def problems(self) -> list[str]:
        """The refused parts of a configuration beside the one in force, one sentence each."""
        return [
            f"{document.what} refused, the last good one goes on: {document.refusal}"
            for document in (self.own, self.devices) if document.refusal and not self._awaits(document)
        ]  # fmt: skip

    def waits_for(self) -> list[str]:
        """Return why there is no configuration in force yet."""
        return [f"{d.awaited} ({d.refusal})" for d in (self.own, self.devices) if self._awaits(d)]

    # -- what becomes of a text -----------------------------------------------------------------------------------

    def _awaits(self, document: Document) -> bool:
        return document.awaited in self.informers.unsynced

    def _refuse(self, document: Document, cause: str) -> None:
        self.refused += 1
        document.refusal = cause
        if not document.good and not self.informers.synced.is_set():
            self.informers.unsynced.add(document.awaited)
            log.error("nothing is placed before there is %s: %s", document.awaited, cause)
        else:
            log.error("%s kept: %s", document.what, cause)
        self._say(document, "Warning", "ConfigurationRefused", cause)

    def _taken(self, document: Document, remarks: list[str]) -> None:
        mended, document.refusal, document.good = bool(document.refusal), "", True
        for remark in remarks:
            log.warning("configuration: %s", remark)
            self._say(document, "Warning", "ConfigurationWarning", remark)
        if mended:
            self._say(document, "Normal", "ConfigurationTaken", f"{document.what} is in force again")
        if self._awaits(document):
            self.informers.arrived(document.awaited)
        self.informers.wake.set()

    def _say(self, document: Document, kind: Severity, reason: str, text: str) -> None:
        if document.shown is not None:
            meta = document.shown.metadata
            self.report(Event("ConfigMap", "v1", meta.namespace, meta.name, meta.uid, kind, reason, text))

    def _keep(self, key: str, text: str | None) -> None:
        if self.last_good is not None:
            self.last_good.put(key, text)

    def _note(self, text: str, devices: str | None, *, strict: bool | None = None) -> None:
        self.informers.enter.note(Configure(text, self.own.source, self.strict if strict is None else strict, devices))

    # -- the scheduler's own ----------------------------------------------------------------------------------------

    def read_file(self, *, first: bool = False) -> None:
        """Read the file, if there is one. Raises BadInput only the first time: when it cannot be read at all, or cannot be
        used although it has to be (``strict``, not ``unready``)."""
        if self.file is None:
            return
        self.own.source = str(self.file)
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
            self._take(text, first=first)

    async def _watch_file(self) -> None:
        while True:
            await self.informers.clock.sleep(FILE_LOOK)
            self.read_file()

    def _on_map(self, found: ConfigMap | None) -> None:
        text = None if found is None else found.data.get(SCHEDULER_CONF_KEY)
        self.own.shown = found
        if found is None:
            log.warning("%s is gone; configuration kept", self.own.source)
            self._text = None
            if self._awaits(self.own):  # there is none any more, as if there never had been
                self.informers.arrived(self.own.awaited)
        elif text is None:
            if self._text is not None or not self.own.refusal:
                self._text = None
                self._refuse(self.own, f"{self.own.source} has no key {SCHEDULER_CONF_KEY}")
        elif text != self._text:
            self._text = text
            self._take(text)

    def _take(self, text: str, *, first: bool = False) -> None:
        try:
            conf = parse_scheduler_conf(text, source=self.own.source, strict=self.strict)
            self._note(text, self._device_text)
            remarks = self.engine.configure(conf, self._device_config, strict=self.strict)
        except BadInput as error:
            self._refuse(self.own, str(error))
            if first and (self.strict or not self.unready):
                raise
            return
        self.conf, self._good_text = conf, text
        log.info("configuration source=%s actions=%s", self.own.source, ",".join(conf.actions))
        self._taken(self.own, remarks)
        self._keep(SCHEDULER_CONF_KEY, text)
        self._follow_device_map()
        self._follow_reports()

    # -- devices ------------------------------------------------------------------------------------------------

    def _on_device_map(self, found: ConfigMap | None) -> None:
        self.devices.shown = found
        text = None if found is None else found.data.get(DEVICE_CONFIG_KEY)
        try:
            config = None if text is None else parse_device_config(text)
            if self.strict and config is not None and config.warnings:
                raise BadInput(f"{config.warnings[0]} (strict)")
        except BadInput as error:
            self._refuse(self.devices, f"{self.devices.source}: {error}")
            return
        self._keep(DEVICE_CONFIG_KEY, text)
        if config != self._device_config:
            self._device_config, self._device_text = config, text
            self._note(self._good_text, text, strict=False)
            self.engine.configure(self.conf, config)
        self._taken(self.devices, [*(config.warnings if config else ()), *remarks_on(self.engine.settings, config)])

    async def _watch_devices(self) -> None:
        """Watch the device ConfigMap that the configuration names, and another one when it names another."""
        self._follow_device_map()
        while True:
            self._renamed.clear()
            where = self.devices.source.removeprefix("configmap ")
            await run_until(self._renamed, self.informers.watch_configmap("devices", where, self._on_device_map))

    def _follow_device_map(self) -> None:
        settings = self.engine.settings
        source = f"configmap {settings.configmap_namespace}/{settings.configmap}"
        if source != self.devices.source:
            self.devices.source = source
            self._renamed.set()

    # -- what others report of nodes ------------------------------------------------------------------------------

    async def _watch_reports(self) -> None:
        """Follow the ConfigMaps that the device types name, and others when they name others."""
        self._follow_reports()
        while True:
            self._others.clear()
            if self._reports:
                await run_until(self._others, *map(self.informers.watch_reports, self._reports))
            else:
                await self._others.wait()

    def _follow_reports(self) -> None:
        wanted = sources_of(self.engine)
        if wanted == self._reports:
            return
        self._reports = wanted
        self._others.set()
        if wanted and not self.informers.synced.is_set():
            self.informers.unsynced.add(REPORTS)
        elif REPORTS in self.informers.unsynced:
            self.informers.arrived(REPORTS)


# -- last good --------------------------------------------------------------------------------------------------------

# The last configuration that was taken, and whose pods it is taken for, kept in a ConfigMap beside the scheduler's own.
# ``pumice explain``, ``fits``, ``dump`` and ``top`` learn from it which pods are ours, and answer by its configuration while
# the one that stands there is refused.

RETRY = 5.0


@dataclass(slots=True)
class LastGood:
    """The last configuration that was valid, kept in a ConfigMap. ``beside`` is namespace/name of the ConfigMap that people
    write."""

    cluster: Cluster
    clock: Clock
    beside: str
    _data: dict[str, str | None] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, key: str, text: str | None) -> None:
        if self._data.get(key, "") != text:
            self._data[key] = text
            self._changed.set()

    async def run(self) -> None:
        """Write for ever."""
        namespace, _, name = self.beside.partition("/")
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.cluster.patch(kinds.CONFIGMAPS, f"{name}{LAST_GOOD}", {"data": dict(self._data)}, namespace)
            except ApiError as error:
                if error.code in (403, 404, 422):  # an installation without it: explain can only name what is refused then
                    log.info("the last good configuration is not kept: %s", error)
                    continue
                self._changed.set()
                await self.clock.sleep(max(RETRY, error.retry_after))
