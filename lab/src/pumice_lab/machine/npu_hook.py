"""The hooks of ``ascend-docker-runtime`` on an emulated machine (HAMi ascend-device-plugin, MindCluster
ascend-docker-runtime), a program of their own as there:

    python -m pumice_lab.machine.npu_hook make PHYSICAL TEMPLATE CONTAINER     prints the id of the slice that it made
    python -m pumice_lab.machine.npu_hook destroy CONTAINER                    destroys the slices of a container that has ended
    python -m pumice_lab.machine.npu_hook open SLICE CONTAINER                 maps a slice that a device plugin has made
    python -m pumice_lab.machine.npu_hook close CONTAINER                      leaves the slices of a container that has ended

A slice is known by the container's id in the driver's record, so whoever comes after a crash finds whose it was.
"""

from __future__ import annotations

import sys

from pumice.adapters.dcmi import DcmiVnpus
from pumice.ports.cards import CardsUnavailable
from pumice.ports.slices import NpuRefused
from pumice_lab.machine.native import library_dir


def make(vnpus: DcmiVnpus, physical: int, template: str, container: int) -> int:
    chip = vnpus.chip_of(physical)
    ident = vnpus.make(chip, template)
    vnpus.use(chip, ident, container)
    return ident


def destroy(vnpus: DcmiVnpus, container: int) -> None:
    for chip in vnpus.chips():
        for slice_ in vnpus.list(chip):
            if slice_.container == container:
                vnpus.use(chip, slice_.id, 0)
                vnpus.destroy(chip, slice_.id)


def open_slice(vnpus: DcmiVnpus, ident: int, container: int) -> None:
    for chip in vnpus.chips():
        if any(slice_.id == ident for slice_ in vnpus.list(chip)):
            vnpus.use(chip, ident, container)
            return
    raise NpuRefused(f"there is no vNPU {ident}")


def close(vnpus: DcmiVnpus, container: int) -> None:
    for chip in vnpus.chips():
        for slice_ in vnpus.list(chip):
            if slice_.container == container:
                vnpus.use(chip, slice_.id, 0)


def driver_id(container: str) -> int:
    """Return the driver's id of a container: its first twelve hexadecimal digits."""
    return int(container[:12], 16)


def main(words: list[str]) -> int:
    try:
        vnpus = DcmiVnpus(str(library_dir()))
        match words:
            case ["make", physical, template, container]:
                print(make(vnpus, int(physical), template, driver_id(container)))
            case ["destroy", container]:
                destroy(vnpus, driver_id(container))
            case ["open", ident, container]:
                open_slice(vnpus, int(ident), driver_id(container))
            case ["close", container]:
                close(vnpus, driver_id(container))
            case _:
                raise NpuRefused(f"npu_hook: {' '.join(words)!r} cannot be meant")
    except (NpuRefused, CardsUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
