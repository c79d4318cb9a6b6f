"""Files of HAMi's and Volcano's in our words, and back: what is renamed, what is added, what stays and is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pumice.devices.convert import Converted, convert
from pumice.devices.lint import lint_files
from pumice.model.errors import BadInput
from pumice.wire import hami_names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.hami_names import To


def one(text: str, to: To = To.PUMICE, *, from_hami: bool = False) -> Converted:
    (found,) = convert({"f.yaml": text}, to, from_hami=from_hami)
    return found


def pod(limits: str, spec: str = "schedulerName: volcano", notes: str = "") -> str:
    reported = f"\n  annotations: {{{notes}}}" if notes else ""
    named = f"\n  {spec}" if spec else ""
    return (f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: p{reported}\nspec:{named}\n  containers:\n"
            f"  - name: c\n    image: i\n    resources:\n      limits: {{{limits}}}\n")  # fmt: skip


HAMIS = """\
# what the team runs
apiVersion: apps/v1
kind: Deployment
metadata: {name: train}
spec:
  selector: {matchLabels: {app: train}}
  template:
    metadata:
      labels: {app: train}
      annotations:
        nvidia.com/use-gputype: "A100"      # only these
        nvidia.com/use-gpuuuid: "GPU-1,GPU-2"
        nvidia.com/vgpu-mode: hami-core
        hami.io/node-scheduler-policy: "binpack"
        hami.io/gpu-scheduler-policy: 'spread'
    spec:
      schedulerName: hami-scheduler
      containers:
      - name: c
        image: i
        resources:
          limits:
            nvidia.com/gpu: 2               # of each 3000 MiB
            nvidia.com/gpumem: "3000"
            "nvidia.com/gpucores": 30
      - name: d
        image: i
        resources:
          limits:
            nvidia.com/gpumem-percentage: 50
"""
OURS = """\
# what the team runs
apiVersion: apps/v1
kind: Deployment
metadata: {name: train}
spec:
  selector: {matchLabels: {app: train}}
  template:
    metadata:
      labels: {app: train}
      annotations:
        nvidia.com/use-gputype: "A100"      # only these
        volcano.sh/vgpu-use-gpuuuid: "GPU-1,GPU-2"
        volcano.sh/vgpu-mode: hami-core
        pumice.io/node-policy: "binpack"
        pumice.io/card-policy: 'spread'
    spec:
      schedulerName: volcano
      containers:
      - name: c
        image: i
        resources:
          limits:
            volcano.sh/vgpu-number: 2               # of each 3000 MiB
            volcano.sh/vgpu-memory: "3000"
            "volcano.sh/vgpu-cores": 30
      - name: d
        image: i
        resources:
          limits:
            volcano.sh/vgpu-number: 1
            volcano.sh/vgpu-memory-percentage: 50
"""


def test_a_workload_of_hamis_becomes_ours_word_by_word_and_keeps_its_comments_order_and_quotation_marks():
    found = one(HAMIS)
    assert found.text == OURS
    assert found.left == ()
    assert [(change.line, change.before, change.after) for change in found.changes[:3]] == [
        (12, "nvidia.com/use-gpuuuid", "volcano.sh/vgpu-use-gpuuuid"), (13, "nvidia.com/vgpu-mode", "volcano.sh/vgpu-mode"),
        (14, "hami.io/node-scheduler-policy", "pumice.io/node-policy"),
    ]  # fmt: skip
    assert len(found.changes) == 10
    assert all(change.why for change in found.changes)
    assert "MiB of each card in both" in str(found.changes[6])
    assert lint_files({"f": found.text}) == []


def test_and_back_again_but_for_what_was_added():
    found = one(OURS, To.HAMI)
    counted = "            nvidia.com/gpu: 1\n            nvidia.com/gpumem-per"
    assert found.text == HAMIS.replace("            nvidia.com/gpumem-per", counted)
    assert found.left == ()


@pytest.mark.parametrize(("before", "after"), [
    ("nvidia.com/gpumem: 3000", "volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000"),
    ("nvidia.com/gpu: 1, nvidia.com/gpucores: 30", "volcano.sh/vgpu-number: 1, volcano.sh/vgpu-cores: 30"),
    ("nvidia.com/gpu: 1", "nvidia.com/gpu: 1"),
    ("volcano.sh/vgpu-number: 1, nvidia.com/gpu: 1", "volcano.sh/vgpu-number: 1, nvidia.com/gpu: 1"),
    ("huawei.com/Ascend910B: 1", "huawei.com/Ascend910B: 1"),
    ("cpu: 1", "cpu: 1"),
])  # fmt: skip
def test_limits_are_renamed_where_it_is_sure_whose_they_are(before, after):
    assert yaml.safe_load(one(pod(before)).text) == yaml.safe_load(pod(after))


def test_a_whole_card_that_may_be_nvidias_own_stays_until_somebody_says_whose_it_is():
    text = pod("nvidia.com/gpu: 1")
    (left,) = one(text).left
    assert (left.line, left.name) == (11, "nvidia.com/gpu")
    assert "--from hami" in left.consequence
    assert one(text, from_hami=True).text == pod("volcano.sh/vgpu-number: 1")
    other = pod("nvidia.com/gpumem: 1")
    assert convert({"a": text, "b": other})[0].text == pod("volcano.sh/vgpu-number: 1"), "a file beside it says whose it is"


JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: j}
spec:
  tasks:
  - template:
      spec:
        containers:
        - {name: c, resources: {limits: {nvidia.com/gpumem: 1}}}
"""


@pytest.mark.parametrize(("text", "added"), [
    (pod("nvidia.com/gpumem: 1", ""), True), (pod("huawei.com/Ascend910B: 1", ""), True), (pod("cpu: 1", ""), False),
    (pod("nvidia.com/gpu: 1", ""), False), (pod("nvidia.com/gpumem: 1", "schedulerName: mine"), False), (JOB, False),
])  # fmt: skip
def test_a_pod_with_cards_gets_the_scheduler_that_chooses_them_unless_it_names_one(text, added):
    assert ("+ schedulerName: volcano" in "".join(map(str, one(text).changes))) is added


@pytest.mark.parametrize("named", ["default-scheduler", "'default-scheduler'", '""', "", "~"])
def test_a_pod_read_from_a_cluster_gets_the_scheduler_that_chooses_its_cards_as_hamis_webhook_gives_it_its_own(named):
    text = pod("nvidia.com/gpu: 1, nvidia.com/gpumem: 3", f"schedulerName: {named}")
    found = one(text)
    assert yaml.safe_load(found.text)["spec"]["schedulerName"] == "volcano"
    assert (found.changes[0].line, found.changes[0].after) == (6, "volcano")
    without = pod("cpu: 1", "schedulerName: default-scheduler")
    assert one(without).text == without


@pytest.mark.parametrize("shared", [
    "{nvidia.com/gpu: 4, nvidia.com/gpumem: 3}", "{nvidia.com/gpumem: 3}", "{nvidia.com/gpu: 4}",
])  # fmt: skip
def test_limits_that_stand_elsewhere_and_are_merged_in_count_as_if_they_stood_there(shared):
    text = f"x: &limits {shared}\n{pod('<<: *limits, nvidia.com/gpumem: 5', '')}"
    found = yaml.safe_load(one(text).text)
    requested = yaml.safe_load(shared).get("nvidia.com/gpu", 1)
    assert found["spec"]["schedulerName"] == "volcano"
    assert found["spec"]["containers"][0]["resources"]["limits"] == {
        "volcano.sh/vgpu-number": requested,
        "volcano.sh/vgpu-memory": 5,
    }


@pytest.mark.parametrize("written", [
    ": |\n      nvidia:\n        resourceCountName: nvidia.com/gpu\n  b: c\n",
    ": |4- # version 2\n\n        nvidia:\n          resourceCountName: nvidia.com/gpu\n  b: c\n",
    ": >\n      {nvidia: {resourceCountName: nvidia.com/gpu}}\n  b: c\n",
    ": &a1 >-\n      {nvidia: {resourceCountName: nvidia.com/gpu}}\n  b: *a1\n",
    ": &a1 'nvidia: {resourceCountName: nvidia.com/gpu}'\n  b: *a1\n",
], ids=["block", "indented", "folded", "anchored", "quoted"])  # fmt: skip
def test_a_config_map_is_converted_however_its_text_is_written(written):
    text = f"kind: ConfigMap\nmetadata: {{name: hami-scheduler-device}}\ndata:\n  device-config.yaml{written}"
    before, after = yaml.safe_load(text)["data"], yaml.safe_load(one(text).text)["data"]
    assert after == {key: value.replace("nvidia.com/gpu", "volcano.sh/vgpu-number") for key, value in before.items()}


def test_objects_in_lists_of_one_kind_and_in_lists_of_lists_are_converted():
    hamis = yaml.safe_load(DEVICES)
    typed = {"kind": "ConfigMapList", "items": [{key: hamis[key] for key in ("metadata", "data")}]}
    for listed in (typed, {"kind": "List", "items": [{"kind": "List", "items": [hamis]}]}):
        assert len(one(yaml.safe_dump(listed)).changes) == len(one(DEVICES).changes) > 0
    assert one("&a\nkind: List\nitems: [*a]\n").changes == ()


def test_json_with_tabs_between_its_words_is_read_and_keeps_them():
    text = json.dumps(yaml.safe_load(pod("nvidia.com/gpumem: 3")), indent="\t")
    found = one(text)
    assert json.loads(found.text)["spec"]["containers"][0]["resources"]["limits"]["volcano.sh/vgpu-memory"] == 3
    assert found.text.count("\t") == text.count("\t")


def test_json_is_yaml_and_stays_json():
    text = json.dumps({"kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpumem": 5}}}]}})
    assert json.loads(one(text).text)["spec"] == {"schedulerName": "volcano", "containers": [
        {"resources": {"limits": {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 5}}}]}  # fmt: skip


def test_quotas_and_queues_count_the_same_by_the_other_name():
    text = ("kind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard:\n    requests.nvidia.com/gpu: 4\n    "
            "requests.nvidia.com/gpumem: 9000\n    limits.nvidia.com/gpumem: 9000\n---\n"
            "kind: Queue\nspec:\n  capability: {nvidia.com/gpu: 4, nvidia.com/gpucores: 100}\n")  # fmt: skip
    found = one(text)
    quota, queue = yaml.safe_load_all(found.text)
    assert quota["spec"]["hard"] == {"requests.volcano.sh/vgpu-number": 4, "requests.volcano.sh/vgpu-memory": 9000,
                                     "limits.nvidia.com/gpumem": 9000}  # fmt: skip
    assert queue["spec"]["capability"] == {"volcano.sh/vgpu-number": 4, "volcano.sh/vgpu-cores": 100}
    assert ["write requests.volcano.sh/vgpu-memory" in left.consequence for left in found.left] == [True]


FIRST = {"name": "CUDA_TASK_PRIORITY", "value": "0"}
BLOCK = """\
spec:
  schedulerName: volcano
  containers:
  - name: c
%s    resources:
      limits:
%s      requests: {nvidia.com/gpumem: 1, nvidia.com/priority: AMOUNT}
"""


@pytest.mark.parametrize("amount", ["0", '"0"', "1", "'1'"])
@pytest.mark.parametrize("limits", [
    "        nvidia.com/priority: %s   # who comes first\n        nvidia.com/gpumem: 1\n",
    "        nvidia.com/gpumem: 1\n        nvidia.com/priority: %s\n", "        nvidia.com/priority: %s\n",
    "        {nvidia.com/gpumem: 1, nvidia.com/priority: %s}\n", "        {nvidia.com/priority: %s, nvidia.com/gpumem: 1}\n",
    "        {nvidia.com/priority: %s}\n",
])  # fmt: skip
@pytest.mark.parametrize(("written", "had"), [
    ("", []), ("    env:\n    - name: A\n      value: b\n", [{"name": "A", "value": "b"}]), ("    env: []\n", []),
    ("    env: [{name: A, value: b}]\n", [{"name": "A", "value": "b"}]), ("    env:\n", []),
    ("    env:\n    - {name: CUDA_TASK_PRIORITY, value: '0'}\n", [FIRST]),
])  # fmt: skip
def test_a_pod_of_hamis_priority_starts_here_and_comes_first_by_what_hamis_webhook_would_write(written, had, limits, amount):
    """The resource is offered by nobody: a pod that keeps it never starts."""
    found = one(BLOCK.replace("%s", written, 1).replace("%s", limits.replace("%s", amount)).replace("AMOUNT", amount))
    (container,) = yaml.safe_load(found.text)["spec"]["containers"]
    assert "nvidia.com/priority" not in found.text
    for part in container["resources"].values():
        assert not part or part.keys() <= {"volcano.sh/vgpu-memory", "volcano.sh/vgpu-number"}
    wanted = had if FIRST in had or "1" in amount else [FIRST, *had]
    assert sorted(container.get("env") or [], key=str) == sorted(wanted, key=str)
    assert not found.left
    assert [f for f in lint_files({"f.yaml": f"kind: Pod\napiVersion: v1\n{found.text}"}) if "priority" in f.text.lower()] == []


def test_in_json_too_and_where_it_stands_elsewhere_it_is_told():
    text = json.dumps({"kind": "Pod", "spec": {"schedulerName": "volcano", "containers": [
        {"name": "c", "resources": {"limits": {"nvidia.com/gpumem": 1, "nvidia.com/priority": 0}}}]}})  # fmt: skip
    (container,) = json.loads(one(text).text)["spec"]["containers"]
    assert container["env"] == [FIRST]
    (left,) = one("kind: ResourceQuota\nspec:\n  hard: {requests.nvidia.com/gpumem: 1, nvidia.com/priority: 1}\n").left
    assert "PriorityClass" in left.consequence


def test_lint_says_that_nobody_offers_hamis_priority():
    (found,) = lint_files({"p.yaml": pod("volcano.sh/vgpu-number: 1, nvidia.com/priority: 1")})
    assert "nobody offers nvidia.com/priority: the pod never starts" in found.text


@pytest.mark.parametrize(("text", "name", "words"), [
    (pod("nvidia.com/gpumem: 1", notes='nvidia.com/numa-bind: "true"'), "nvidia.com/numa-bind", "NUMA node"),
    (pod("nvidia.com/gpumem: 1", notes="hami.io/gpu-scheduler-policy: mutex"), "hami.io/gpu-scheduler-policy", "cluster's"),
    (pod("nvidia.com/gpumem: 1", notes="nvidia.com/vgpu-mode: mps"), "nvidia.com/vgpu-mode", "any mode"),
    (pod("nvidia.com/gpumem: 1", notes="hami.io/vgpu-node: n1"), "hami.io/vgpu-node", "take it out"),
    (pod("nvidia.com/gpumem: 1", notes="nvidia.com/use-gpuuuid: A, nvidia.com/nouse-gpuuuid: B"), "a list of cards", "the first"),
    (pod("cambricon.com/vmlu: 1"), "cambricon.com/vmlu", "Pending"),
    ("kind: MutatingWebhookConfiguration\nmetadata: {name: h}\nwebhooks: [{name: vgpu.hami.io}]\n",
     "MutatingWebhookConfiguration h", "delete it"),
    ("kind: Deployment\nmetadata: {name: hami-scheduler}\nspec: {template: {spec: {containers: [{image: 'projecthami/hami:v2', "
     "command: [scheduler]}]}}}\n", "Deployment hami-scheduler", "deploy/manifests"),
    ("kind: ConfigMap\nmetadata: {name: hami-scheduler}\ndata:\n  config.yaml: |\n    kind: KubeSchedulerConfiguration\n",
     "config.yaml", "volcano-scheduler.conf"),
])  # fmt: skip
def test_what_has_no_name_here_stays_and_is_told_with_what_comes_of_it(text, name, words):
    found = one(text)
    reported = {left.name.split(" to use")[0]: left.consequence for left in found.left}
    assert words in reported[name]


DEVICES = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: hami-scheduler-device
  namespace: hami-system
data:
  device-config.yaml: |-
    nvidia:
      resourceCountName: nvidia.com/gpu   # the cards
      resourceMemoryName: "nvidia.com/gpumem"
      resourceMemoryPercentageName: nvidia.com/gpumem-percentage
      resourceCoreName: nvidia.com/gpucores
      resourcePriorityName: nvidia.com/priority
      overwriteEnv: false
      memoryFactor: 4
      deviceSplitCount: 8

      enableNumaTopology: false
      gpuCorePolicy: force
      knownMigGeometries:
      - models: ["A30"]
        allowedGeometries:
          -
            - {name: 1g.6gb, memory: 6144, count: 4}
      migProfileAllowlist:
      - {models: [A30], profiles: [1g.6gb]}
    hygon:
      resourceCountName: hygon.com/dcunum
"""


def test_hamis_device_config_map_becomes_volcanos_and_is_read_to_the_same_effect():
    found = one(DEVICES)
    obj = yaml.safe_load(found.text)
    assert obj["metadata"] == {"name": "volcano-vgpu-device-config", "namespace": "kube-system"}
    config = parse_device_config(obj["data"]["device-config.yaml"]).nvidia
    assert (config.resource_count_name, config.resource_memory_name) == ("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory")
    assert (config.gpu_memory_factor, config.device_split_count) == (4, 8)
    assert [group.name for group in config.known_mig_geometries[0].groups] == ["group1"]
    assert "# the cards" in found.text
    assert {left.name: left.line for left in found.left} == {
        "resourcePriorityName": 13, "gpuCorePolicy": 19, "migProfileAllowlist": 25, "hygon": 27}  # fmt: skip


def test_and_back_it_is_hamis_again_but_for_the_geometries_of_which_hami_makes_nothing():
    found = one(one(DEVICES).text, To.HAMI)
    obj = yaml.safe_load(found.text)
    assert obj["metadata"] == {"name": "hami-scheduler-device", "namespace": "kube-system"}
    before = yaml.safe_load(DEVICES)["data"]
    assert yaml.safe_load(obj["data"]["device-config.yaml"]) == yaml.safe_load(before["device-config.yaml"])
    assert [left.name for left in found.left] == ["knownMigGeometries"]


def test_a_map_of_chips_alone_keeps_its_name_and_one_of_nodes_gets_volcanos():
    chips = "    vnpus:\n      configs:\n      - {chipName: 910A, runtimeClassName: ascend}\n"
    found = one((DEVICES[: DEVICES.index("    nvidia:")] + chips).replace("hami-scheduler", "release-hami-scheduler"))
    assert yaml.safe_load(found.text)["metadata"]["name"] == "hami-scheduler-device"
    assert [left.name for left in found.left] == ["runtimeClassName"]
    nodes = ('kind: ConfigMap\nmetadata: {name: hami-device-plugin, namespace: kube-system}\n'
             'data: {config.json: \'{"nodeconfig": [{"name": "n"}]}\'}\n')  # fmt: skip
    assert yaml.safe_load(one(nodes).text)["metadata"]["name"] == "volcano-vgpu-node-config"


@pytest.mark.parametrize("text", [HAMIS, DEVICES])
def test_the_ends_of_lines_stay(text):
    assert one(text.replace("\n", "\r\n")).text == one(text).text.replace("\n", "\r\n")


def test_text_in_quotation_marks_is_written_in_quotation_marks():
    text = 'kind: ConfigMap\nmetadata: {name: x}\ndata: {device-config.yaml: "nvidia: {memoryFactor: 2}\\n"}\n'
    assert yaml.safe_load(one(text).text)["data"] == {"device-config.yaml": "nvidia: {gpuMemoryFactor: 2}\n"}


def test_volcanos_words_are_ours_and_going_back_names_what_only_we_read():
    text = pod("volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 5", notes="pumice.io/card-policy: spread")
    assert (one(text).changes, one(text).left) == ((), ())
    assert [left.name for left in one(text, To.VOLCANO).left] == ["pumice.io/card-policy"]
    text = pod("volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 5", notes="pumice.io/burst-memory: '10'")
    assert [[left.name for left in one(text, to).left] for to in (To.VOLCANO, To.HAMI)] == [["pumice.io/burst-memory"]] * 2
    conf = ("kind: ConfigMap\nmetadata: {name: c}\ndata:\n  volcano-scheduler.conf: |\n    actions: allocate\n    tiers:\n"
            "    - plugins:\n      - name: gang\n        arguments: {pumice.gangReservation: true}\n")  # fmt: skip
    (left,) = one(conf, To.VOLCANO).left
    assert (left.name, left.line) == ("pumice.gangReservation", 9)
    assert one(conf).left == ()


def test_to_hami_what_has_no_queue_and_no_gang_is_told():
    found = one("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n---\n" + pod(
        "volcano.sh/vgpu-number: 1", notes="scheduling.k8s.io/group-name: g"), To.HAMI)  # fmt: skip
    assert [left.name for left in found.left] == ["Queue q", "scheduling.k8s.io/group-name"]
    assert "schedulerName: hami-scheduler" in found.text


@pytest.mark.parametrize("text", [
    pod("nvidia.com/gpumem: 1, volcano.sh/vgpu-number: 1"),
    pod("nvidia.com/gpumem: 1") + "---\n" + pod("volcano.sh/vgpu-memory: 1"),
    pod("volcano.sh/vgpu-number: 1", "schedulerName: hami-scheduler"),
    pod("nvidia.com/gpumem: 1", notes="volcano.sh/vgpu-use-gpuuuid: A"),
])  # fmt: skip
def test_a_file_with_names_of_both_sides_is_refused_by_these_names(text):
    reported = r"f.yaml: names of HAMi's and of Volcano's in one file, .* \(line \d+\) and .* \(line"
    for to in To:
        with pytest.raises(BadInput, match=reported):
            one(text, to)


def test_an_alias_is_renamed_once_where_it_stands():
    text = "a: &l {nvidia.com/gpumem: 1}\nb: *l\nc: {<<: *l}\n"
    assert one(text).text == "a: &l {volcano.sh/vgpu-memory: 1}\nb: *l\nc: {<<: *l}\n"
    assert len(one(text).changes) == 1


def test_the_page_names_everything_that_is_renamed_or_left():
    page = (Path(__file__).parents[4] / "docs" / "reference" / "convert.md").read_text("utf-8")
    named = {*hami_names.RESOURCES, *hami_names.RESOURCES.values(), *hami_names.ANNOTATIONS, *hami_names.ANNOTATIONS.values(),
             *hami_names.CONFIG_KEYS, *hami_names.CONFIG_KEYS.values(), *hami_names.LOST, *hami_names.LOST_AT_HAMI,
             *hami_names.LOST_KEYS_AT_VOLCANO, *hami_names.LOST_KEYS_AT_HAMI}
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []
