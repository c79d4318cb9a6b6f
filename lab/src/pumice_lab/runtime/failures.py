"""The spawner's errors in the words that a user of containerd knows."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from pumice_lab.runtime.spec import ContainerSpec, StartFailed


def start_failure(message: Mapping[str, Any], spec: ContainerSpec | None) -> StartFailed:
    """The spawner's error in the words that a user of containerd knows."""
    stage, number, text = message["stage"], message["errno"], message["message"]
    path = message.get("path", "")
    prefix = "failed to create containerd task: OCI runtime create failed: unable to start container process: "
    if stage == "exec":
        program = spec.argv[0] if spec and spec.argv else path
        if number == errno.ENOENT and "/" in program:
            text = "no such file or directory"
        return StartFailed("StartError", f'{prefix}exec: "{program}": {text[:1].lower()}{text[1:]}')
    if stage == "cwd":
        where = spec.working_dir if spec else path
        return StartFailed("StartError", f'{prefix}chdir to cwd ("{where}") set in workingDir failed: {text}')
    return StartFailed("CreateContainerError", f"{stage}: {path + ': ' if path else ''}{text}", transient=True)
