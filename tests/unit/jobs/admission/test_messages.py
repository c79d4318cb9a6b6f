"""Every message of the admission (Volcano pkg/webhooks/admission), from the object that earns it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit.job_world import job, on, task
from kit.objects import queue

from pumice.wire.names import QUEUE_GATE
from pumice_jobs.admission.pods import groups_of
from pumice_jobs.admission.review import CREATE, DELETE, UPDATE, Request, Settings, read, render
from pumice_jobs.admission.rules import BY_PATH, RULES

OPEN = {"status": {"state": "Open"}}


@dataclass
class View:
    found: list = field(default_factory=list)
    spaces: dict = field(default_factory=dict)

    def queue(self, name):
        return next((each for each in self.found if each["metadata"]["name"] == name), None)

    def queues(self):
        return self.found

    def namespace(self, name):
        return self.spaces.get(name)


def q(name, state="Open", *, allocated=None, annotations=None, **spec):
    found = {**queue(name), "status": {"state": state, **({"allocated": allocated} if allocated else {})}}
    found["spec"] = {**found.get("spec", {}), **spec}
    found["metadata"]["annotations"] = annotations or {}
    return found


def requested(path, obj, *, view=None, old=None, operation=CREATE, settings=None):
    meta = (obj or old)["metadata"]
    request = Request(operation, meta.get("namespace", ""), meta["name"], obj or {}, old or {})
    return BY_PATH[path].decide(request, view or View([q("default")]), settings or Settings())


@pytest.mark.parametrize(("spec", "text"), [
    (None, "spec.task[0].template.spec: Required value."),
    ({"containers": None}, "spec.task[0].template.spec.containers: Required value."),
    ({"containers": [None]}, "spec.task[0].template.spec.containers[0]: Required value."),
    ({"containers": [{"name": "c", "image": "x", "resources": {"requests": None}}], "volumes": None}, ""),
    ({"containers": 5}, "spec.task[0].template: Expected `array`, got `int`"),
    ("x", "spec.task[0].template: Expected `object | null`"),
    ({"containers": [{"name": {}, "resources": "much"}]}, "spec.task[0].template: Expected `str`, got `object`"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_what_is_null_in_a_template_is_not_there_and_what_has_another_form_is_named(spec: Any, text: str, policy: str) -> None:
    refused = refused_job(task("a", template={"spec": spec}, topologyPolicy=policy))
    assert refused.startswith(text)
    assert bool(refused) == bool(text)


def test_a_gang_that_waits_for_itself_is_warned_of() -> None:
    tasks = [task("a"), task("b", 2, dependsOn={"name": ["a"]})]
    answer = requested("/jobs/validate", job("j", *tasks, minAvailable=2))
    assert (answer.refused, [text.partition(":")[0] for text in answer.warnings]) == (
        "", ["spec.minAvailable is 2, but only 1 of the pods are made before others are up (dependsOn)"])  # fmt: skip
    assert requested("/jobs/validate", job("j", *tasks)).warnings, "all of them are the default"
    assert not requested("/jobs/validate", job("j", *tasks, minAvailable=1)).warnings


def refused_job(*tasks, view=None, **spec):
    return requested("/jobs/validate", job("j", *tasks, **spec), view=view).refused


# -- Jobs -----------------------------------------------------------------------------------------------------------------

MISTAKES = [
    ("No task specified in job spec", [], {}),
    ("The specified mpi master task was not found", [task("worker")], {"plugins": {"mpi": ["--master=boss"]}}),
    ("must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously", [task("a")],
     {"networkTopology": {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "rack"}}),
    ("'minAvailable' is greater than 'replicas' in task: a, job: j;", [task("a", 1, minAvailable=2)], {"minAvailable": 1}),
    ("duplicated task name a;", [task("a"), task("a")], {}),
    ("must not specify event and exitCode simultaneously valid events are [", [task("a")],
     {"policies": [{"event": "PodFailed", "exitCode": 3, "action": "AbortJob"}]}),
    ("either event and exitCode should be specified", [task("a", policies=[{"action": "AbortJob"}])], {}),
    ('spec.policies: Invalid value: "PodFell": invalid policy event', [task("a")], {"policies": [on("PodFell", "AbortJob")]}),
    ('spec.tasks.policies: Invalid value: "Stop": invalid policy action', [task("a", policies=[on("PodFailed", "Stop")])], {}),
    ("duplicate event PodFailed  across different policy", [task("a")],
     {"policies": [on("PodFailed", "AbortJob"), on("PodFailed", "RestartJob")]}),
    ("0 is not a valid error code", [task("a")], {"policies": [{"exitCode": 0, "action": "AbortJob"}]}),
    ("duplicate exitCode 3", [task("a")],
     {"policies": [{"exitCode": 3, "action": "AbortJob"}, {"exitCode": 3, "action": "AbortJob"}]}),
    ("if there's * here, no other policy should be here", [task("a")],
     {"policies": [on("*", "AbortJob"), on("PodFailed", "RestartJob")]}),
    ("create pod with name j-" + "x" * 62 + "-0 validate failed [name part must be no more than 63 characters];",
     [task("x" * 62)], {}),
    ("spec.task[0].template.spec.containers: Required value", [task("a", template={"spec": {"containers": []}})], {}),
    ("spec.task[0].template.spec.containers[0].image: Required value",
     [task("a", template={"spec": {"containers": [{"name": "c"}]}})], {}),
    ('spec.task[1].template.spec.containers[1].name: Duplicate value: "c"',
     [task("a"), task("b", template={"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}})], {}),
    ("the cpu request isn't an integer in spec.task[0] container[0].",
     [task("a", topologyPolicy="restricted", template={"spec": {"containers": [
         {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}]}})], {}),
    ("'TotalPartitions' must be greater than 0 in task: a, job: j",
     [task("a", 4, partitionPolicy={"totalPartitions": 0, "partitionSize": 2})], {}),
    ("'PartitionSize' must be greater than 0", [task("a", 4, partitionPolicy={"totalPartitions": 2, "partitionSize": 0})], {}),
    ("'Replicas' are not equal to TotalPartitions*PartitionSize",
     [task("a", 5, partitionPolicy={"totalPartitions": 2, "partitionSize": 2})], {}),
    ("'MinAvailable' is not equal to MinPartitions*PartitionSize",
     [task("a", 4, minAvailable=3, partitionPolicy={"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1})], {}),
    ("job 'minAvailable' should not be greater than total replicas in tasks;", [task("a")], {"minAvailable": 2}),
    ("unable to find job plugin: svn;", [task("a")], {"plugins": {"svn": []}}),
    ("mountPath is required;", [task("a")], {"volumes": [{"volumeClaimName": "v"}]}),
    ("duplicated mountPath: /x;", [task("a")],
     {"volumes": [{"mountPath": "/x", "volumeClaimName": "v"}, {"mountPath": "/x", "volumeClaimName": "w"}]}),
    ("either VolumeClaim or VolumeClaimName must be specified;", [task("a")], {"volumes": [{"mountPath": "/x"}]}),
    ("conflict: if you want to use an existing PVC", [task("a")],
     {"volumes": [{"mountPath": "/x", "volumeClaimName": "v", "volumeClaim": {}}]}),
    ("invalid VolumeClaimName -v- : [", [task("a")], {"volumes": [{"mountPath": "/x", "volumeClaimName": "-v-"}]}),
    ("unable to find job queue: queue.scheduling.volcano.sh \"nowhere\" not found;", [task("a")], {"queue": "nowhere"}),
    ("can only submit job to queue with state `Open`, queue `shut` status is `Closed`;", [task("a")], {"queue": "shut"}),
    ("can not submit job to root queue;", [task("a")], {"queue": "root"}),
    ("can only submit job to leaf queue, queue `parent` has 1 child queues;", [task("a")], {"queue": "parent"}),
    ("job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);",
     [task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})], {}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "tasks", "spec"), MISTAKES, ids=[words[:50] for words, _, _ in MISTAKES])
def test_a_job_that_cannot_be_meant_is_refused_in_upstreams_words(words, tasks, spec):
    view = View([q("default"), q("shut", "Closed"), q("root"), q("parent"), q("child", parent="parent")])
    assert words in refused_job(*tasks, view=view, **spec)


def test_a_job_whose_name_no_label_can_hold_is_refused():
    long = requested("/jobs/validate", job("j" * 64, task("a"))).refused
    assert f"create job with name {'j' * 64} validate failed [name part must be no more than 63 characters]" in long


def test_a_job_that_is_well_is_allowed():
    assert refused_job(task("a", 3, minAvailable=2), policies=[on("PodEvicted", "RestartJob")], plugins={"svc": []}) == ""


def test_all_that_is_wrong_stands_in_one_message():
    text = refused_job(task("a", 1, minAvailable=2), task("a"), plugins={"svn": []})
    assert text == ("'minAvailable' is greater than 'replicas' in task: a, job: j; duplicated task name a; "
                    "job 'minAvailable' should not be greater than total replicas in tasks; "
                    "unable to find job plugin: svn;")  # fmt: skip


def test_a_job_gets_what_it_leaves_out():
    bare = job("j", {"replicas": 2, "template": {"spec": {"hostNetwork": True, "containers": []}}}, plugins={"mpi": []})
    found = {patch["path"]: patch["value"] for patch in requested("/jobs/mutate", bare).patch}
    assert found["/spec/queue"] == "default"
    assert found["/spec/schedulerName"] == "volcano"
    assert (found["/spec/maxRetry"], found["/spec/minAvailable"]) == (3, 2)
    assert found["/spec/plugins"] == {"mpi": [], "svc": [], "ssh": []}
    (only,) = found["/spec/tasks"]
    assert (only["name"], only["maxRetry"], only["minAvailable"]) == ("default0", 3, 2)
    assert only["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_a_job_without_tasks_is_given_none():
    assert "/spec/tasks" not in {
        patch["path"] for patch in requested("/jobs/mutate", {"metadata": {"name": "j"}, "spec": {}}).patch
    }


def test_a_job_that_says_everything_is_left_as_it_is():
    whole = job("j", task("a", 1, minAvailable=1, maxRetry=1), queue="q", schedulerName="s", maxRetry=1, minAvailable=1)
    assert requested("/jobs/mutate", whole).patch == []


def changed(edit):
    old = job("j", task("a", 2, minAvailable=1), minAvailable=1, queue="default")
    new = copy.deepcopy(old)
    edit(new["spec"])
    return requested("/jobs/validate", new, old=old, operation=UPDATE).refused


CHANGES = [
    ("", lambda spec: spec.update(minAvailable=2, priorityClassName="high")),
    ("", lambda spec: spec["tasks"][0].update(replicas=5, minAvailable=2)),
    ("", lambda spec: spec.update(minAvailable=3) or spec["tasks"][0].update(replicas=3)),
    ("job updates may not add or remove tasks", lambda spec: spec["tasks"].append(task("b"))),
    ("job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`",
     lambda spec: spec.update(queue="other")),
    ("job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`",
     lambda spec: spec["tasks"][0]["template"]["spec"]["containers"][0].update(image="x")),
    ("'replicas' must be >= 0 in task: a", lambda spec: spec["tasks"][0].update(replicas=-1)),
    ("'minAvailable' must be >= 0 in task: a", lambda spec: spec["tasks"][0].update(minAvailable=-1)),
    ("'minAvailable' must be <= 'replicas' in task: a", lambda spec: spec["tasks"][0].update(minAvailable=3)),
    ("job 'minAvailable' must not be greater than total replicas", lambda spec: spec.update(minAvailable=3)),
    ("job 'minAvailable' must be >= 0", lambda spec: spec.update(minAvailable=-1)),
    ("must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously",
     lambda spec: spec.update(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"})),
]  # fmt: skip


@pytest.mark.parametrize(("words", "edit"), CHANGES, ids=[str(number) for number in range(len(CHANGES))])
def test_of_a_job_only_its_size_and_its_priority_may_change(words, edit):
    assert changed(edit) == words


def test_a_file_that_is_applied_again_is_no_change():
    bare = job("j", {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}, plugins={"mpi": []})
    bare["spec"]["tasks"][0]["name"] = "master"
    stored = copy.deepcopy(bare)
    for patch in requested("/jobs/mutate", bare).patch:
        stored["spec"][patch["path"].rpartition("/")[2]] = patch["value"]
    assert stored["spec"] != bare["spec"]
    assert requested("/jobs/validate", bare, old=stored, operation=UPDATE).refused == ""


# -- PodGroups ------------------------------------------------------------------------------------------------------------


def group(**spec):
    return {"metadata": {"name": "g", "namespace": "ml"}, "spec": {"minMember": 1, **spec}}


def test_a_podgroup_goes_to_a_queue_that_is_there_and_open():
    assert requested("/podgroups/validate", group()).refused == ""
    gone = requested("/podgroups/validate", group(queue="x")).refused
    assert gone == 'unable to find queue: queue.scheduling.volcano.sh "x" not found'
    shut = View([q("q", "Closing")])
    words = "can only submit PodGroup to queue with state `Open`, queue `q` status is `Closing`."
    assert requested("/podgroups/validate", group(queue="q"), view=shut).refused == words
    both = group(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"})
    assert requested("/podgroups/validate", both).refused.endswith("in networkTopology simultaneously.")


def test_a_podgroup_without_a_queue_goes_to_that_of_its_namespace():
    view = View([q("default")], {"ml": {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "research"}}}})
    assert requested("/podgroups/mutate", group(), view=view).patch == [{"op": "add", "path": "/spec/queue", "value": "research"}]
    assert requested("/podgroups/mutate", group(queue="own"), view=view).patch == []
    assert requested("/podgroups/mutate", group()).patch == []


# -- queues ---------------------------------------------------------------------------------------------------------------

TREE = View([
    q("default"), q("root", deserved={"cpu": "100"}),
    q("a", parent="root", deserved={"cpu": "10"}, guarantee={"resource": {"cpu": 4}}, capability={"cpu": "20"}),
    q("a1", parent="a", deserved={"cpu": "6"}, guarantee={"resource": {"cpu": 3}}),
    q("d2", parent="a1"), q("d3", parent="d2"), q("d4", parent="d3"),
    q("h", annotations={"volcano.sh/hierarchy": "root/eng/dev"}),
    q("busy", allocated={"pods": "3", "cpu": "1"}),
])  # fmt: skip
QUEUES = [
    ("volcano.sh/hierarchy must have the same length with volcano.sh/hierarchy-weights",
     q("n", annotations={"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1"})),
    ("x in the 1/x is invalid number",
     q("n", annotations={"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/x"})),
    ("0 in the 1/0 must be larger than 0",
     q("n", annotations={"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/0"})),
    ("root/eng is not allowed to be in the sub path of root/eng/dev of queue h",
     q("n", annotations={"volcano.sh/hierarchy": "root/eng", "volcano.sh/hierarchy-weights": "1/2"})),
    ("queue state must be in [Open Closed]", q("n", "Ajar")),
    ('requestBody.spec.deserved.cpu: Invalid value: "1": deserved[cpu]=1 must be >= guarantee[cpu]=2',
     q("n", deserved={"cpu": "1"}, guarantee={"resource": {"cpu": "2"}})),
    ("deserved[memory] must be >= guarantee[memory]=1Gi",
     q("n", deserved={"cpu": "1"}, guarantee={"resource": {"memory": "1Gi"}})),
    ('requestBody.spec.deserved.cpu: Invalid value: "<nil>": deserved[cpu] must be >= guarantee[cpu]=1',
     q("n", guarantee={"resource": {"cpu": 1}}, capability={"cpu": 4})),
    ("deserved[cpu]=4 must be <= capability[cpu]=2", q("n", deserved={"cpu": "4"}, capability={"cpu": "2"})),
    ('requestBody.spec.capability.cpu: Invalid value: "lots"', q("n", capability={"cpu": "lots"})),
    ('requestBody.spec.deserved.cpu: Invalid value: "-1": must be greater than or equal to 0', q("n", deserved={"cpu": "-1"})),
    ("queue n cannot use itself as parent", q("n", parent="n")),
    ("failed to get parent queue of queue n: queue.scheduling.volcano.sh \"gone\" not found", q("n", parent="gone")),
    ("queue n exceeds the maximum allowed depth of 5", q("n", parent="d4")),
    ("parent queue a validation failed: sum of children's deserved (cpu: 11) exceeds parent's deserved limit (cpu: 10)",
     q("n", parent="a", deserved={"cpu": "5"})),
    ("parent queue a validation failed: sum of children's guarantee (cpu: 5) exceeds parent's guarantee limit (cpu: 4)",
     q("n", parent="a", deserved={"cpu": "2"}, guarantee={"resource": {"cpu": "2"}})),
    ("queue n capability[cpu]=30 exceeds its ancestor's capability=20", q("n", parent="a1", capability={"cpu": "30"})),
]  # fmt: skip


@pytest.mark.parametrize(("words", "made"), QUEUES, ids=[words[:60] for words, _ in QUEUES])
def test_a_queue_that_cannot_be_meant_is_refused_in_upstreams_words(words, made):
    assert words in requested("/queues/validate", made, view=TREE).refused


def test_a_queue_that_closes_a_ring_is_refused():
    ring = requested("/queues/validate", q("a", parent="d2"), old=q("a"), operation=UPDATE, view=TREE)
    assert "queue a cannot use itself as parent" in ring.refused


def test_a_parent_may_not_shrink_below_its_children():
    new = q("a", parent="root", deserved={"cpu": "5"}, guarantee={"resource": {"cpu": 4}})
    text = requested("/queues/validate", new, old=q("a"), operation=UPDATE, view=TREE).refused
    assert "sum of children's deserved (cpu: 6) exceeds parent's deserved limit (cpu: 5)" in text


def test_the_root_queues_resources_stay_as_they_are_unless_told():
    old, new = q("root", deserved={"cpu": "100"}), q("root", deserved={"cpu": "50"})
    words = "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
    assert requested("/queues/validate", new, old=old, operation=UPDATE, view=TREE).refused == words
    assert requested("/queues/validate", new, old=old, operation=UPDATE, settings=Settings(protect_root=False)).refused == ""


GOING = [
    ("`default` queue can not be deleted", "default", Settings()),
    ("`root` queue can not be deleted", "root", Settings()),
    ("queue a can not be deleted because it has 1 child queues: a1", "a", Settings()),
    ("queue busy cannot be deleted because it has allocated Pods: 3", "busy", Settings(check_allocated=True)),
    ("", "busy", Settings()),
    ("", "d4", Settings()),
]


@pytest.mark.parametrize(("words", "name", "settings"), GOING)
def test_a_queue_that_others_need_is_not_deleted(words, name, settings):
    found = requested("/queues/validate", None, old=TREE.queue(name), operation=DELETE, view=TREE, settings=settings)
    assert found.refused == words


def test_a_queue_that_holds_pods_becomes_no_parent_where_that_is_asked_for():
    text = requested("/queues/validate", q("n", parent="busy"), view=TREE, settings=Settings(check_allocated=True)).refused
    assert text == "queue busy cannot be the parent queue of queue n because it has allocated Pods: 3"


def test_a_queue_gets_what_it_leaves_out():
    notes = {"volcano.sh/hierarchy": "eng", "volcano.sh/hierarchy-weights": "2"}
    made = {"metadata": {"name": "n", "annotations": notes}, "spec": {}}
    assert {patch["path"]: patch["value"] for patch in requested("/queues/mutate", made).patch} == {
        "/metadata/annotations/volcano.sh~1hierarchy": "root/eng",
        "/metadata/annotations/volcano.sh~1hierarchy-weights": "1/2",
        "/spec/reclaimable": True, "/spec/weight": 1,
    }  # fmt: skip


# -- the others -----------------------------------------------------------------------------------------------------------


def pod(**notes):
    annotations = {f"volcano.sh/{key.replace('_', '-')}": value for key, value in notes.items()}
    spec = {"nodeSelector": {"zone": "a"}, "schedulerName": "volcano"}
    return {"metadata": {"name": "p", "namespace": "ml", "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize(("words", "notes"), [
    ("", {}), ("", {"jdb_min_available": "3"}), ("", {"jdb_max_unavailable": "99%"}),
    ("not allow configure multiple annotations <[volcano.sh/jdb-min-available volcano.sh/jdb-max-unavailable]> at same time",
     {"jdb_min_available": "1", "jdb_max_unavailable": "1"}),
    *((f'invalid value <"{number}"> for volcano.sh/jdb-min-available, it must be a positive integer',
       {"jdb_min_available": number}) for number in ("0", "-1")),
    *((f'invalid value <"{part}"> for volcano.sh/jdb-min-available, it must be a valid percentage which between 1% ~ 99%',
       {"jdb_min_available": part}) for part in ("0%", "100%", "-1%", "some")),
])  # fmt: skip
def test_a_pod_names_one_disruption_budget_and_a_sane_one(words, notes):
    found = requested("/pods/validate", pod(**notes)).refused
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_what_pods_of_other_schedulers_say_of_disruptions_is_theirs():
    other = pod(jdb_min_available="0")
    other["spec"]["schedulerName"] = "default-scheduler"
    assert requested("/pods/validate", other).refused == ""


def test_pods_of_a_resource_group_go_where_it_lies():
    groups = groups_of([{"resourceGroup": "gpu", "object": {"key": "namespace", "value": ["ml"]}, "schedulerName": "volcano",
                         "labels": {"pool": "gpu"}, "tolerations": [{"operator": "Exists"}]}])  # fmt: skip
    found = requested("/pods/mutate", pod(), settings=Settings(groups=groups))
    assert {patch["path"]: patch["value"] for patch in found.patch} == {
        "/spec/nodeSelector": {"zone": "a", "pool": "gpu"}, "/spec/tolerations": [{"operator": "Exists"}],
        "/spec/schedulerName": "volcano",
    }  # fmt: skip
    own = groups_of([{"resourceGroup": "cpu", "labels": {"pool": "cpu"}}])
    assert requested("/pods/mutate", pod(resource_group="cpu"), settings=Settings(groups=own)).patch
    assert requested("/pods/mutate", pod(resource_group="other"), settings=Settings(groups=own)).patch == []


def test_a_pod_that_shall_wait_for_its_queue_is_given_the_gate_once_beside_its_own():
    asking, other = pod(), {"name": "example.com/other"}
    asking["metadata"]["annotations"] = {QUEUE_GATE: "true"}
    added = {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": QUEUE_GATE}]}
    assert requested("/pods/mutate", asking).patch == [added]
    asking["spec"]["schedulingGates"] = [other]
    assert requested("/pods/mutate", asking).patch[0]["value"] == [other, {"name": QUEUE_GATE}]
    asking["spec"]["schedulingGates"] = [{"name": QUEUE_GATE}]
    assert requested("/pods/mutate", asking).patch == []
    asking["metadata"]["annotations"] = {QUEUE_GATE: "yes"}
    asking["spec"]["schedulingGates"] = []
    assert requested("/pods/mutate", asking).patch == []


def cron(name="c", template=None, **spec):
    made = {"spec": job("j", task("a"), **(template or {}))["spec"]}
    return {"metadata": {"name": name, "namespace": "d"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": made, **spec}}


@pytest.mark.parametrize(("words", "obj"), [
    (" schedule is required, but got empty", cron(schedule="")),
    (" schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field", cron(schedule="TZ=UTC @daily")),
    (" schedule is not a valid cron expression: ", cron(schedule="error schedule")),
    (" schedule is not a valid cron expression: ", cron(schedule="@every blue moon")),
    (" timeZone must be nil or non-empty string, got empty string", cron(timeZone="")),
    (" timeZone can't be Local, and must be defined in https://www.iana.org/time-zones", cron(timeZone="Local")),
    *((" unknown timeZone", cron(timeZone=zone)) for zone in ("Asia/./Shanghai", "America/-NewYork", "New York", "UTC!", "..")),
    (" invalid timeZone", cron(timeZone="Amerrica/New_York")),
    ("must be no more than 52 characters", cron("a" * 53)),
    ("invalid cronJob name -UPPER", cron("-UPPER")),
    (" can only submit job to queue with state `Open`, queue `shut` status is `Closed`;", cron(template={"queue": "shut"})),
    (" 'minAvailable' is greater than 'replicas' in task: a, job: c;",
     cron(template={"tasks": [task("a", 1, minAvailable=2)], "minAvailable": 1})),
])  # fmt: skip
def test_a_cronjob_that_cannot_be_meant_is_refused_in_upstreams_words(words, obj):
    for operation in (CREATE, UPDATE):
        found = requested("/cronjobs/validate", obj, operation=operation, view=View([q("default"), q("shut", "Closed")])).refused
        assert words.strip() in found


def test_a_cronjob_that_is_well_is_allowed():
    for fields in ({}, {"schedule": "@every 1m"}, {"schedule": "@daily"}, {"timeZone": "Pacific/Honolulu"}, {"timeZone": "UTC"}):
        assert requested("/cronjobs/validate", cron(**fields)).refused == ""
    assert requested("/cronjobs/validate", cron("a" * 52)).refused == ""


def test_what_is_wrong_with_a_cronjob_and_with_its_name_stands_apart():
    found = requested("/cronjobs/validate", cron("a" * 53, schedule="error schedule")).refused
    assert found.startswith(" schedule is not a valid cron expression")
    assert "; invalid cronJob name" in found


@pytest.mark.parametrize(("words", "member"), [
    ("", {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}),
    ("spec.members[0].selector: Invalid value: exactly one of", {"type": "Node", "selector": {}}),
    ("spec.members[0].selector.regexMatch.pattern: Invalid value",
     {"type": "Node", "selector": {"regexMatch": {"pattern": "["}}}),
    ("only nodes are chosen by labels", {"type": "HyperNode", "selector": {"labelMatch": {"matchLabels": {}}}}),
    ("a HyperNode is no member of itself", {"type": "HyperNode", "selector": {"exactMatch": {"name": "h"}}}),
    ('spec.members[0].type: Unsupported value: "Rack"', {"type": "Rack", "selector": {"exactMatch": {"name": "n1"}}}),
])  # fmt: skip
def test_a_hypernodes_members_can_be_meant(words, member):
    found = requested("/hypernodes/validate", {"metadata": {"name": "h"}, "spec": {"tier": 1, "members": [member]}}).refused
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize("spec", [{"tier": 1}, {"tier": 1, "members": []}])
def test_a_hypernode_without_members_is_refused(spec):
    found = requested("/hypernodes/validate", {"metadata": {"name": "h"}, "spec": spec}).refused
    assert found == "spec.members: Invalid value: []: member must have at least one member"


@pytest.mark.parametrize(("words", "flows"), [
    ("", [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]),
    ("", []), ("", [{"name": "a"}, {"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]),
    ("jobflow Flow is not DAG", [{"name": "a", "dependsOn": {"targets": ["a"]}}]),
    ("jobflow Flow is not DAG: vertex is not defined: c", [{"name": "b", "dependsOn": {"targets": ["c"]}}]),
    ("jobflow Flow is not DAG", [{"name": "a", "dependsOn": {"targets": ["b"]}}, {"name": "b", "dependsOn": {"targets": ["a"]}}]),
])  # fmt: skip
def test_a_flow_ends(words, flows):
    found = requested("/jobflows/validate", {"metadata": {"name": "f", "namespace": "d"}, "spec": {"flows": flows}}).refused
    assert words in found
    assert bool(found) == bool(words)


def test_whoever_names_a_flow_twice_is_told_that_it_is_one_job():
    flow = {"metadata": {"name": "f"}, "spec": {"flows": [{"name": "a"}, {"name": "a"}]}}
    assert requested("/jobflows/validate", flow).warnings == (
        "two flows have one name: they are one Job, as the first of them says",
    )


def test_a_review_is_read_and_answered_by_its_uid():
    uid, request = read({"request": {"uid": "u1", "operation": "CREATE", "namespace": "d", "name": "j", "object": {"spec": {}}}})
    assert (uid, request.operation, request.old) == ("u1", CREATE, {})
    answer = render(uid, requested("/podgroups/validate", group(queue="x")))
    assert (answer["response"]["uid"], answer["response"]["allowed"], answer["response"]["status"]["code"]) == ("u1", False, 403)
    with pytest.raises(ValueError, match="no AdmissionReview"):
        read({"request": {}})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.path)
@pytest.mark.parametrize("noise", [{}, {"spec": None}, {"spec": {}}, {"spec": {"tasks": None}}])
def test_no_object_makes_a_rule_fail(rule, noise):
    obj = {"metadata": {"name": "x"}, **noise}
    for operation in rule.operations:
        rule.decide(Request(operation, "d", "x", obj, obj), View([q("default")]), Settings())
