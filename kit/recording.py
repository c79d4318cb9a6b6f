"""The moving picture of the README: ``python -m kit.recording`` types its commands on this machine and draws what they print.

The commands run on an emulated machine and an embedded cluster in a home of their own, so that nothing of the user's is shown or
touched. The picture is an SVG whose lines appear one after the other; numbers of processes differ from one recording to the next.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "assets" / "demo.svg"
SESSION = (
    "# two programs share one card",
    "pumice run --emulated --memory 40% --cores 50 -- pumice burn --memory 3000 --kernel-ms 5 --seconds 60 &",
    "pumice run --emulated --memory 30% --cores 30 -- pumice burn --memory 2000 --kernel-ms 5 --seconds 60 &",
    "pumice ps",
    "# a limit holds",
    "pumice run --emulated --memory 2000 -- pumice burn --memory 3000 --seconds 3",
    "# a whole cluster, without hardware",
    "pumice up -d --emulated",
    "kubectl apply -f examples/vgpu-user-guide/hami-pod.yaml -f examples/too-big.yaml",
    "pumice explain pod too-big",
)
COLUMNS, ROW, GLYPH = 110, 18, 7.8
PAUSE, READ, HOLD = 0.9, 0.12, 6.0
"""Seconds after a command, for each line that it prints, and at the end."""


def recorded() -> list[tuple[float, str, str]]:
    """Record the session: when each line appears, what it is (typed, said or remarked), and its words."""
    home = Path(tempfile.mkdtemp(prefix="pumice-recording-"))
    kubeconfig = home / ".local/share/pumice/cluster/kubeconfig"
    environ = {**os.environ, "HOME": str(home), "COLUMNS": str(COLUMNS), "KUBECONFIG": str(kubeconfig),
               "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
    lines, now, background = [], 0.5, []
    try:
        for command in SESSION:
            if command.startswith("#"):
                lines.append((now, "remarked", command))
                now += PAUSE
                continue
            lines.append((now, "typed", f"$ {command}"))
            now += PAUSE
            if command.endswith("&"):
                background.append(subprocess.Popen(
                    ["bash", "-c", f"exec {command.removesuffix('&')}"], cwd=ROOT, env=environ,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))  # fmt: skip
                subprocess.run(["sleep", "4"], check=True)
                continue
            done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120)
            if command.startswith("kubectl"):
                subprocess.run(["sleep", "4"], check=True)
            for line in done.stdout.replace(str(home), "~").splitlines():
                lines.append((now, "said", line.rstrip()[:COLUMNS]))
                now += READ
            now += PAUSE
    finally:
        for program in background:
            program.terminate()
            program.wait(30)
        subprocess.run(["pumice", "down"], cwd=ROOT, env=environ, capture_output=True)
        shutil.rmtree(home, ignore_errors=True)
    return lines


def drawn(lines: list[tuple[float, str, str]]) -> str:
    length = lines[-1][0] + HOLD
    width, height = round(COLUMNS * GLYPH) + 24, len(lines) * ROW + 44
    rules, rows = [], []
    for at, (when, kind, text) in enumerate(lines):
        start = 100 * when / length
        rules.append(f"@keyframes l{at}{{0%,{start:.2f}%{{opacity:0}}{start + 0.01:.2f}%,100%{{opacity:1}}}}"
                     f"#l{at}{{animation:l{at} {length:.1f}s infinite}}")  # fmt: skip
        rows.append(f'<text id="l{at}" class="{kind}" x="12" y="{46 + at * ROW}">{escape(text)}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Two programs share a card; a limit holds; a cluster says why a pod waits</title>",
        "<style>text{font:13px monospace;white-space:pre;fill:#d8dee9}.typed{fill:#a3e08a}.remarked{fill:#8fa3bf}",
        *rules,
        "@media (prefers-reduced-motion:reduce){text{animation:none!important}}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1e2430" />',
        '<circle cx="18" cy="16" r="5" fill="#e06c6c" /><circle cx="34" cy="16" r="5" fill="#e0c46c" />',
        '<circle cx="50" cy="16" r="5" fill="#7fbf6b" />',
        *rows,
        "</svg>\n",
    ])  # fmt: skip


def main() -> None:
    lines = recorded()
    told = "\n".join(text for _, _, text in lines)
    for wanted in ("CUDA_ERROR_OUT_OF_MEMORY", "What would let it in", r"31\d\d/4471 MiB"):
        if not re.search(wanted, told):
            raise SystemExit(f"the session does not show {wanted!r}:\n{told}")
    PICTURE.write_text(drawn(lines), "utf-8")


if __name__ == "__main__":
    main()
