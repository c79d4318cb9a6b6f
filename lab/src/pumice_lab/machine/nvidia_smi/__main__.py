"""``python -m pumice_lab.machine.nvidia_smi``."""

from __future__ import annotations

import sys

from pumice_lab.machine.nvidia_smi.command import main

if __name__ == "__main__":
    sys.exit(main())
