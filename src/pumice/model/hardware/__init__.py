"""Facts about NVIDIA hardware: cards by name, and what MIG offers on them. Pure values read from TOML beside this file.

The emulated machine builds cards from them and deviceshare's MIG catalogue builds geometries from them, so the facts
stand once. Sizes are MiB throughout.
"""

from pumice.model.hardware.cards import CardPreset, preset, preset_names, presets_called
from pumice.model.hardware.mig import MigProfile, MigTable, mig_table, mig_table_for, mig_tables, normalised

__all__ = [
    "CardPreset",
    "MigProfile",
    "MigTable",
    "mig_table",
    "mig_table_for",
    "mig_tables",
    "normalised",
    "preset",
    "preset_names",
    "presets_called",
]
