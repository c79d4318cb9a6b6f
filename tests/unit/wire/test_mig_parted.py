"""Files that say how cards shall be cut: mig-parted's, and places beside them."""

from __future__ import annotations

import pytest

from pumice.model.errors import BadInput
from pumice.wire.mig_parted import Rule, parse_mig_configs, render_mig_configs

PUBLISHED = """
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}
  all-balanced:
    - device-filter: ["0x20B010DE", "0x20B110DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb": 2
        "2g.10gb": 1
        "3g.20gb": 1
    - device-filter: "0x233010DE"
      devices: [0,1]
      mig-enabled: true
      mig-devices: {"1g.10gb": 7}
"""


def test_mig_parteds_own_files_are_read_as_they_are():
    configs = parse_mig_configs(PUBLISHED)
    assert configs["all-disabled"] == (Rule(None, False),)
    assert configs["all-enabled"] == (Rule(None, True),)
    balanced, hopper = configs["all-balanced"]
    assert balanced.counts == {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}
    assert [balanced.meets(3, pci) for pci in (0x20B010DE, 0x20B110DE, 0x233010DE)] == [True, True, False]
    assert [hopper.meets(index, 0x233010DE) for index in (0, 1, 2)] == [True, True, False]


def test_what_is_written_is_read_back():
    rules = (Rule((0, 2), True, {"2g.10gb": 1, "1g.5gb": 2}, (("2g.10gb", 4), ("1g.5gb+me", 0))), Rule(None, False))
    assert parse_mig_configs(render_mig_configs("current", rules)) == {"current": rules}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: expected a mapping with `version: v1`"),
        ("version: v2\nmig-configs: {}\n", "line 1: expected a mapping with `version: v1`"),
        ("version: v1\nmig-configs: []\n", "line 2: expected configurations by name"),
        ("version: v1\nmig-configs:\n  a: {}\n", "line 3: mig-configs.a: expected a list of entries"),
        ("version: v1\nmig-configs:\n  a:\n  - devices: some\n    mig-enabled: true\n",
         "line 4: mig-configs.a.0.devices: expected all"),
        ("version: v1\nmig-configs:\n  a:\n  - devices: all\n", "mig-enabled: expected true or false, not None"),
        ("version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: true, mig-device: {}}\n", "unknown key; did you mean"),
        ("version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: x}}\n", "not 'x'"),
        ("version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: true, mig-devices: {1c.3g.20gb: 1}}\n",
         "parts of a slice are not made"),
        ("version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}\n",
         "cards out of MIG mode have no slices"),
        ("version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: true, mig-places: [1g.5gb]}\n", "such as 2g.10gb@4"),
        ("version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: true, device-filter: [x]}\n", "such as 0x20B010DE"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(text, said):
    with pytest.raises(BadInput) as refused:
        parse_mig_configs(text)
    assert said in str(refused.value)
