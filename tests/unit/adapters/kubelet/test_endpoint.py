"""One endpoint on a real socket: what it notices of the kubelet's end."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import grpc
import pytest

from pumice.adapters.kubelet.endpoint import Endpoint


class Unasked:
    """No call of this handler is expected."""

    async def allocate(self, ids: Any) -> Any:
        raise AssertionError(ids)

    async def prefer(self, available: Any, must: Any, size: int) -> list[str]:
        raise AssertionError(available)


@pytest.mark.parametrize("megabytes", [0, 16], ids=["while it waits for news", "while it is given a list"])
def test_a_kubelet_that_goes_away_is_noticed(megabytes: int) -> None:
    async def story() -> None:
        with tempfile.TemporaryDirectory(prefix="pumice") as folder:
            endpoint = Endpoint(Path(folder), "nvidia-vgpu-number.sock", Unasked())
            await endpoint.start()
            await endpoint.announce(b"\n" * (megabytes << 20))
            channel = grpc.aio.insecure_channel(f"unix://{folder}/{endpoint.name}")
            stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
            async with asyncio.timeout(60):
                await endpoint.followed.wait()
                assert not endpoint.lost.is_set()
                stream.cancel()
                await channel.close()
                await endpoint.lost.wait()
            await endpoint.stop()

    asyncio.run(story())


def test_a_kubelet_whose_stream_we_end_is_not_lost() -> None:
    async def story() -> None:
        with tempfile.TemporaryDirectory(prefix="pumice") as folder:
            endpoint = Endpoint(Path(folder), "nvidia-vgpu-number.sock", Unasked())
            await endpoint.start()
            async with grpc.aio.insecure_channel(f"unix://{folder}/{endpoint.name}") as channel:
                stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
                await asyncio.wait_for(endpoint.followed.wait(), 60)
                await endpoint.stop()
                assert await stream.read() is grpc.aio.EOF
            assert not endpoint.lost.is_set()

    asyncio.run(story())
