"""The embedded API server as a process of its own, with a request log like kube-apiserver's audit log.

    python -m benchmarks.end_to_end.embedded DATA_DIR PORT REQUEST_LOG
"""

from __future__ import annotations

import asyncio
import datetime
import json
import random
import signal
import sys
import time
from pathlib import Path

from pumice.ports.clock import SystemClock
from pumice.wire.times import stamp
from pumice_lab.apiserver.http_types import Request, Response, target_of
from pumice_lab.control_plane import start_embedded
from pumice_lab.datadir import DataDir
from pumice_lab.pki import ensure_pki


async def serve(directory: Path, port: int, log: Path) -> None:
    data = DataDir(directory / "data")
    data.database.parent.mkdir(parents=True, exist_ok=True)
    pki = ensure_pki(directory / "pki", ["127.0.0.1", "localhost"], datetime.datetime.now(datetime.UTC))
    plane = await start_embedded(data, pki, address="127.0.0.1", port=port, clock=SystemClock(), rng=random.Random(1),
                                 kubelet_tokens=[])  # fmt: skip
    inner = plane.api.handle

    async def handle(request: Request) -> Response:
        if request.method == "GET":
            return await inner(request)
        began = time.time()
        answer = await inner(request)
        out.write(_line(request, answer, began, time.time()))
        return answer

    plane.api.handle = handle  # type: ignore[method-assign]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with log.open("a", buffering=1) as out:
        await stop.wait()
    await plane.stop()


def _line(request: Request, answer: Response, began: float, ended: float) -> str:
    """The fields of an audit event (audit.k8s.io/v1) that are read here."""
    target = target_of(request.path)
    verb = {"POST": "create", "PATCH": "patch", "PUT": "update"}.get(request.method, "delete")
    named = target.name if target is not None else ""
    if not named and answer.code < 300 and verb == "create":
        named = json.loads(answer.body).get("metadata", {}).get("name", "")
    ref = {} if target is None else {"resource": target.plural, "subresource": target.subresource, "name": named}
    return json.dumps({
        "verb": verb, "userAgent": request.headers.get("user-agent", ""), "objectRef": ref,
        "responseStatus": {"code": answer.code}, "requestReceivedTimestamp": stamp(began, 6), "stageTimestamp": stamp(ended, 6),
    }) + "\n"  # fmt: skip


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
