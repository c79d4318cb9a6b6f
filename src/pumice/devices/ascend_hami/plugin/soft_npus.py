"""The needs of a node before soft shares of its NPUs can be given (HAMi ascend-device-plugin): the library where containers
mount it from,
and the chips switched to be shared. Nodes that only cut their chips need none of it."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

from pumice.adapters.dcmi import DcmiCards
from pumice.apps.node.files import digests, install_files, make_directory
from pumice.devices.ascend_hami.node.answer import SHARED
from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.model.errors import BadInput
from pumice.wire import variables

log = logging.getLogger("pumice.node")

NAMES = ("libvnpu.so", "ld.so.preload")
ASSETS = Path("/usr/local/hami-vnpu-core-assets")


def assets_folder() -> Path:
    return Path(os.environ.get(variables.VNPU_ASSETS_PATH) or ASSETS)


def install_library(assets: Path, library: Path, shared: str = SHARED) -> None:
    """Copy what is new, and make the folder that containers share. Raises BadInput where there is nothing to copy and nothing was
    copied before."""
    present = digests(library, NAMES)
    files = []
    for name in NAMES:
        try:
            content = (assets / name).read_bytes()
        except OSError as error:
            if name not in present:
                raise BadInput(f"soft sharing needs {name}, and {assets / name} cannot be read: {error.strerror}") from error
            continue
        if present.get(name) != hashlib.sha256(content).hexdigest():
            files.append(InstallFile(str(library / name), content, 0o755 if name.endswith(".so") else 0o644))
    install_files(files)
    make_directory(MakeDirectory(shared, 0o777))


def open_shared(place: str, chip: str) -> DcmiCards:
    """The chips of this type, switched to be shared; one that refuses takes no pods, and the others do. Raises
    CardsUnavailable."""
    cards = DcmiCards(place, chip)
    for uuid, why in cards.share().items():
        log.error("card %s cannot be shared softly: %s", uuid, why)
    return cards
