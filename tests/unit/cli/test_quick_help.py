"""Start of help and completion: help imports no framework of the network and no room that decides."""

from __future__ import annotations

import subprocess
import sys

from pumice.cli.main import COMMANDS
from pumice_jobs.admission.rules import DEFAULT_PATHS
from pumice_jobs.cli.webhook import ENABLED

HEAVY = (
    "aiohttp", "cryptography", "google.protobuf", "grpc", "lark", "numpy", "pynvml", "re2", "textual", "urllib.request",
    "pumice.adapters.kube", "pumice.apps", "pumice.devices.protocol",
    "pumice.scheduler", "pumice.metrics", "pumice_jobs.admission", "pumice_jobs.apps", "pumice_jobs.metrics",
)  # fmt: skip
GROUPS = ("device-plugin nvidia", "device-plugin gpushare", "device-plugin ascend", "job run", "machine create")
CODE = """
import contextlib, io, sys
from pumice.cli.main import main
heavy = sys.argv[1].split(",")
seen = set()
for words in sys.argv[2:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*words.split(), "--help"])
    assert "usage" in out.getvalue().lower(), (words, out.getvalue())
    for name in sorted(set(heavy) & set(sys.modules) - seen):
        print(f"{words} --help imports {name}")
    seen |= set(sys.modules)
"""


def test_help_imports_nothing_heavy() -> None:
    """All of them in one process: what one imports, the next have too."""
    words = [*COMMANDS, *GROUPS]
    done = subprocess.run([sys.executable, "-c", CODE, ",".join(HEAVY), *words], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_the_help_names_the_webhooks_that_are_registered() -> None:
    assert ENABLED.split(",") == list(DEFAULT_PATHS)


def test_a_command_that_asks_a_cluster_once_imports_no_streams_and_no_parser_of_expressions() -> None:
    """All that answer by the scheduler's rules would pay for both: half of their start."""
    code = "import sys, pumice.cli.snapshot_source; print(*({'aiohttp', 'lark', 're2'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("\n", "", 0)
