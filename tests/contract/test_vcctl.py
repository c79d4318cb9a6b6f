"""vcctl against a real API server: what it prints, and what it makes of the objects (spec volcano-core 21)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.control_plane import Api

from pumice.cli import vcctl
from pumice.cluster.first_objects import volcano_kinds

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


@pytest.fixture(scope="session")
def kinds(api: Api) -> None:
    for kind in volcano_kinds():
        api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
    api.until_served("/apis/batch.volcano.sh/v1alpha1/jobs", "/apis/bus.volcano.sh/v1alpha1/commands", QUEUES,
                     "/apis/scheduling.volcano.sh/v1beta1/podgroups", "/apis/flow.volcano.sh/v1alpha1/jobflows",
                     "/apis/flow.volcano.sh/v1alpha1/jobtemplates")  # fmt: skip


class Vcctl:
    def __init__(self, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.kubeconfig, self._capsys = kubeconfig, capsys

    def __call__(self, *words: str, called: str = "vcctl", code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            vcctl.main([*words, "--kubeconfig", str(self.kubeconfig)], called)
        said = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, said.err
        return said.err if code else said.out


@pytest.fixture
def ctl(api: Api, kinds: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Vcctl:
    cluster = {"server": api.url, "certificate-authority": str(api.ca)}
    text = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": api.token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}  # fmt: skip
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(text))
    return Vcctl(path, capsys)


def status_of(api: Api, namespace: str, name: str, **status: Any) -> None:
    api.merge(f"{JOBS}/{namespace}/jobs/{name}/status", {"status": status})


def test_a_job_is_run_listed_viewed_and_deleted(api: Api, ctl: Vcctl, namespace: str) -> None:
    assert ctl("job", "list", "-n", namespace) == "No resources found\n"
    assert ctl("job", "run", "-N", "train", "-n", namespace, "-r", "4", "-m", "2") == "run job train successfully\n"
    status_of(api, namespace, "train", state={"phase": "Running"}, running=3, pending=1, retryCount=2)
    made = api.get(f"{JOBS}/{namespace}/jobs/train")
    day = made["metadata"]["creationTimestamp"][:10]
    assert ctl("job", "list", "-n", namespace).splitlines() == [
        "Name    Creation       Phase       JobType     Replicas    Min   Pending   Running   Succeeded   Failed    Unknown     "
        "RetryCount",
        f"train   {day}     Running     Batch       4           2     1         3         0           0         0           "
        "2         ",
    ]
    (container,) = made["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert container["image"] == "busybox"
    assert container["resources"]["limits"] == {"cpu": "1000m", "memory": "100Mi"}
    told = ctl("job", "view", "-N", "train", "-n", namespace)
    assert told.startswith("Name:       \ttrain\n")
    assert "  Min Available:\t2\n" in told
    assert "Events:     \t<none>" in told
    assert json.loads(ctl("job", "list", "-n", namespace, "-o", "json"))["items"][0]["metadata"]["name"] == "train"
    assert ctl("-n", namespace, "-q", "other", called="vjobs") == "No resources found\n"
    assert ctl("--all-namespaces", called="vjobs").startswith("Namespace")
    assert ctl("job", "delete", "-N", "train", "-n", namespace) == "delete job train successfully\n"


def test_a_job_of_a_file_is_run_as_it_is_written(api: Api, ctl: Vcctl, namespace: str, tmp_path: Path) -> None:
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "filed"},
            "spec": {"tasks": [{"name": "a", "replicas": 1, "template": {"spec": {"containers": []}}}]}}  # fmt: skip
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(body))
    assert ctl("-f", str(path), "-n", namespace, called="vsub") == "run job filed successfully\n"
    assert api.get(f"{JOBS}/{namespace}/jobs/filed")["spec"]["tasks"][0]["name"] == "a"


def test_suspend_and_resume_are_commands_that_the_job_owns(api: Api, ctl: Vcctl, namespace: str) -> None:
    ctl("job", "run", "-N", "train", "-n", namespace)
    assert ctl("job", "suspend", "-N", "train", "-n", namespace) == ""
    assert ctl("-N", "train", "-n", namespace, called="vresume") == ""
    found = api.get(f"/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands")["items"]
    assert sorted(each["action"] for each in found) == ["AbortJob", "ResumeJob"]
    uid = api.get(f"{JOBS}/{namespace}/jobs/train")["metadata"]["uid"]
    for each in found:
        assert each["metadata"]["name"].startswith(f"train-{each['action'].lower()}-")
        assert (each["target"]["uid"], each["metadata"]["ownerReferences"][0]["uid"]) == (uid, uid)


def test_queues_are_made_shown_operated_and_deleted(api: Api, ctl: Vcctl) -> None:
    assert ctl("queue", "create", "-n", "team", "-w", "4") == ""
    assert ctl("queue", "operate", "-n", "team", "-a", "update", "-w", "7") == ""
    lines = ctl("queue", "get", "-n", "team").splitlines()
    assert lines[0] == "Name                     Weight  State   Parent  Inqueue Pending Running Unknown Completed"
    assert lines[1].split() == ["team", "7", "0", "0", "0", "0", "0"]
    assert any(line.startswith("team ") for line in ctl(called="vqueues").splitlines())
    assert ctl("queue", "operate", "-n", "team", "-a", "close") == ""
    commands = api.get("/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands")["items"]
    assert [each["action"] for each in commands if each["target"]["name"] == "team"] == ["CloseQueue"]
    assert ctl("queue", "delete", "-n", "team") == ""


def test_flows_and_their_templates_are_created_from_a_file_shown_and_deleted(ctl: Vcctl, namespace: str) -> None:
    example = Path(__file__).parents[2] / "examples/jobs/flow.yaml"
    assert ctl("jobtemplate", "create", "-f", str(example), "-n", namespace).splitlines() == [
        f"create jobtemplate {name} successfully" for name in ("data", "train", "report")]  # fmt: skip
    assert ctl("jobflow", "create", "-f", str(example), "-n", namespace) == "create jobflow pipeline successfully\n"
    lines = [line.split() for line in ctl("jobflow", "list", "-n", namespace).splitlines()]
    assert (lines[0], lines[1][:3]) == (["Namespace", "Name", "Phase", "Age"], [namespace, "pipeline", "-"])
    assert ctl("jobflow", "get", "-N", "pipeline", "-n", namespace).splitlines()[1].startswith(namespace)
    assert "  Job Retain Policy:\tretain" in ctl("jobflow", "describe", "-N", "pipeline", "-n", namespace)
    assert ctl("jobflow", "delete", "-N", "pipeline", "-n", namespace) == "delete jobflow pipeline successfully\n"
    assert ctl("jobflow", "list", "-n", namespace) == "No resources found\n"


@pytest.mark.parametrize(("words", "told"), [
    (("job", "run"), "job name cannot be left blank"), (("job", "view"), "job name is mandatory to view a particular job"),
    (("job", "suspend"), "job name is mandatory to suspend a particular job"),
    (("job", "delete"), "job name is mandatory to delete a particular job"),
    (("queue", "get"), "queue name must be specified"), (("queue", "operate", "-n", "q"), "action can not be null"),
    (("queue", "operate", "-n", "q", "-a", "burn"), "action burn invalid, valid actions are open, close and update"),
    (("jobtemplate", "delete"), "jobtemplate name is mandatory to delete a particular jobtemplate"),
    (("job", "view", "-N", "nobody"), 'jobs.batch.volcano.sh "nobody" not found'),
])  # fmt: skip
def test_a_mistake_is_one_line_and_an_exit_code(ctl: Vcctl, words: tuple[str, ...], told: str) -> None:
    assert ctl(*words, code=2) == f"vcctl: {told}\n"


def test_pods_are_listed_by_job_and_queue(api: Api, ctl: Vcctl, namespace: str) -> None:
    for name, labels in (("mine", {"volcano.sh/job-name": "train"}), ("other", {})):
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    lines = ctl("pod", "list", "-n", namespace, "-j", "train").splitlines()
    assert [line.split()[:4] for line in lines] == [["Name", "Ready", "Status", "Restart"], ["mine", "0/1", "Pending", "0"]]
