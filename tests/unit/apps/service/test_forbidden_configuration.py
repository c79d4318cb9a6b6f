"""A configuration that may not be read is not the same as none: whoever goes on with the defaults says so."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from kit.fake_cluster import FakeCluster

from pumice.apps.service.device_config import load_device_config
from pumice.cli.snapshot_source import collect
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError
from pumice.wire.device_config import NvidiaConfig


def closed() -> FakeCluster:
    """Nobody may read its ConfigMaps."""

    async def gate(verb: str, path: str) -> None:
        if "/configmaps/" in path:
            raise ApiError(403, "Forbidden", f'configmaps "{path.rpartition("/")[2]}" is forbidden')

    cluster = FakeCluster()
    cluster.gate = gate
    return cluster


def test_pumice_explain_says_that_it_answers_from_the_defaults() -> None:
    case = asyncio.run(collect(closed(), "volcano-system/volcano-scheduler-configmap"))
    said = "ConfigMap volcano-system/volcano-scheduler-configmap may not be read with these credentials"
    assert case.remarks[0].startswith(said)
    assert case.device_config == ""


def test_a_node_plugin_says_what_it_may_not_read(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "pumice.node"):
        assert asyncio.run(load_device_config("", closed(), SystemClock())) == NvidiaConfig()
    assert 'may not be read: configmaps "volcano-vgpu-device-config" is forbidden' in caplog.text
