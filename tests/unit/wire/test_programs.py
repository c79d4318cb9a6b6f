"""Containers of device stacks are known by image and words, and nobody else's daemons are taken for one."""

from __future__ import annotations

import pytest

from pumice.wire.programs import Maker, Role, program_of


@pytest.mark.parametrize(("image", "command", "args", "account", "maker", "role", "names"), [
    ("pumice/pumice:0.1.0", [], ["scheduler", "--leader-elect"], "", Maker.OURS, Role.SCHEDULER, ("volcano",)),
    ("registry.local:5000/batch@sha256:0", [], ["scheduler", "--scheduler-name", "a", "--scheduler-name=b"], "volcano-scheduler",
     Maker.OURS, Role.SCHEDULER, ("b", "a")),
    ("any", ["/usr/bin/pumice"], ["device-plugin", "ascend"], "", Maker.OURS, Role.PLUGIN, ()),
    ("docker.io/volcanosh/vc-scheduler:v1.12.0", [], ["--scheduler-name=other"], "", Maker.VOLCANO, Role.SCHEDULER, ("other",)),
    ("mirror/x", ["/vc-controller-manager"], [], "", Maker.VOLCANO, Role.CONTROLLER, ()),
    ("projecthami/hami:v2.6.0", ["scheduler"], [], "", Maker.HAMI, Role.SCHEDULER, ("hami-scheduler",)),
    ("projecthami/hami:v2.6.0", ["nvidia-device-plugin"], [], "", Maker.HAMI, Role.PLUGIN, ()),
    ("nvcr.io/nvidia/k8s-device-plugin:v0.17.0", [], [], "", Maker.NVIDIA, Role.PLUGIN, ()),
    ("projecthami/ascend-device-plugin:v1.4.0", [], [], "", Maker.HAMI, Role.PLUGIN, ()),
])  # fmt: skip
def test_a_program_is_known(image, command, args, account, maker, role, names):
    found = program_of(image, command, args, account)
    assert found is not None
    assert (found.maker, found.role, found.names) == (maker, role, names)


@pytest.mark.parametrize(("image", "command", "args", "account"), [
    ("oci.external-secrets.io/external-secrets:v0.10", [], ["webhook", "--port=10250"], "external-secrets-webhook"),
    ("quay.io/some/thing:v1", [], ["controller"], "default"),
    ("registry.k8s.io/kube-scheduler:v1.36.0", ["kube-scheduler"], [], ""),
    ("pumice/pumice:0.1.0", [], ["device-plugin", "nobodys"], ""), ("", [], [], ""),
])  # fmt: skip
def test_nobody_elses_daemons_are_taken_for_one(image, command, args, account):
    assert program_of(image, command, args, account) is None
