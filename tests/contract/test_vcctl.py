"""vcctl against a real API server: what it prints, and what it makes of the objects (Volcano pkg/cli)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.control_plane import Api

from pumice_jobs.cli import vcctl
from pumice_lab.first_objects import volcano_kinds

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces"
VIEW_WHICH = "job name (specified by --name or -N) is mandatory to view a particular job"
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

    def offered(self, *words: str) -> list[str]:
        """Return a shell's completions of the last of these words."""
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("KUBECONFIG", str(self.kubeconfig))
            vcctl.main(["__complete", *words], "vcctl")
        return self._capsys.readouterr().out.splitlines()


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
    reported = ctl("job", "view", "-N", "train", "-n", namespace)
    assert reported.startswith("Name:       \ttrain\n")
    assert "  Min Available:\t2\n" in reported
    assert "Events:     \t<none>" in reported
    assert json.loads(ctl("job", "list", "-n", namespace, "-o", "json"))["items"][0]["metadata"]["name"] == "train"
    assert ctl("job", "list", "-n", namespace, "-q", "other") == "No resources found\n"
    assert ctl("-N", namespace, "-S", "other", called="vjobs") == "No resources found\n"
    assert ctl("-N", namespace, "-n", "train", called="vjobs").startswith("Name:       \ttrain\n")
    assert ctl("--all-namespaces", called="vjobs").startswith("Namespace")
    assert ctl("job", "delete", "-N", "train", "-n", namespace) == "delete job train successfully\n"


def test_names_are_offered_as_the_server_has_them(api: Api, ctl: Vcctl, namespace: str) -> None:
    for name in ("train", "trial", "eval"):
        ctl("job", "run", "-N", name, "-n", namespace)
    ctl("queue", "create", "-n", f"{namespace}-queue")
    assert ctl.offered("job", "view", "-n", namespace, "-N", "tr") == ["train", "trial"]
    assert ctl.offered("job", "suspend", f"--namespace={namespace}", "--name=e") == ["--name=eval"]
    assert ctl.offered("vsuspend", "-N", namespace, "-n", "") == ["eval", "train", "trial"]
    assert set(ctl.offered("pod", "list", "--all-namespaces", "-j", "")) >= {"eval", "train", "trial"}
    assert ctl.offered("queue", "operate", "-n", f"{namespace}-q") == [f"{namespace}-queue"]
    assert ctl.offered("jobflow", "list", "-n", namespace) == [namespace]
    assert ctl.offered("jobtemplate", "get", "-n", namespace, "-N", "") == []


def test_a_job_of_a_file_is_run_as_it_is_written(api: Api, ctl: Vcctl, namespace: str, tmp_path: Path) -> None:
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "filed"},
            "spec": {"tasks": [{"name": "a", "replicas": 1, "template": {"spec": {"containers": []}}}]}}  # fmt: skip
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(body))
    assert ctl("job", "run", "-f", str(path), "-n", namespace) == "run job filed successfully\n"
    assert api.get(f"{JOBS}/{namespace}/jobs/filed")["spec"]["tasks"][0]["name"] == "a"


def test_the_short_forms_take_the_name_as_n_and_defaults_from_the_environment(
    api: Api, ctl: Vcctl, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOLCANO_DEFAULT_JOB_NAMESPACE", namespace)
    monkeypatch.setenv("VOLCANO_DEFAULT_IMAGE", "pytorch")
    monkeypatch.setenv("VOLCANO_SCHEDULER_NAME", "mine")
    assert ctl("-n", "short", "-c", "python 'my train.py'", "-m", "2", "-r", "2", called="vsub") == "run job short successfully\n"
    spec = api.get(f"{JOBS}/{namespace}/jobs/short")["spec"]
    (container,) = spec["tasks"][0]["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == ("pytorch", ["python", "my train.py"])
    assert (spec["schedulerName"], spec["minAvailable"]) == ("mine", 2)
    assert ctl("-n", "short", "-N", namespace, called="vcancel") == "cancel job short successfully\n"


def test_the_view_of_a_job_says_why_it_waits(api: Api, ctl: Vcctl, namespace: str) -> None:
    ctl("job", "run", "-N", "waits", "-n", namespace)
    uid = api.get(f"{JOBS}/{namespace}/jobs/waits")["metadata"]["uid"]
    group = {"kind": "PodGroup", "namespace": namespace, "name": f"waits-{uid}", "uid": "g"}
    event = {"metadata": {"name": "e", "namespace": namespace}, "involvedObject": group, "type": "Normal",
             "reason": "Unschedulable", "message": "queue resource quota insufficient"}  # fmt: skip
    api.create(f"/api/v1/namespaces/{namespace}/events", event)
    assert "queue resource quota insufficient" in ctl("job", "view", "-N", "waits", "-n", namespace)


def test_suspend_and_resume_are_commands_that_the_job_owns(api: Api, ctl: Vcctl, namespace: str) -> None:
    ctl("job", "run", "-N", "train", "-n", namespace)
    assert ctl("job", "suspend", "-N", "train", "-n", namespace) == ""
    assert ctl("-n", "train", "-N", namespace, called="vresume") == ""
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
    assert ctl("-n", "team", called="vqueues").splitlines()[1].startswith("team ")
    assert ctl("queue", "operate", "-n", "team", "-a", "close") == ""
    commands = api.get("/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands")["items"]
    assert [each["action"] for each in commands if each["target"]["name"] == "team"] == ["CloseQueue"]
    assert ctl("queue", "delete", "-n", "team") == ""


def test_flows_and_their_templates_are_created_from_a_file_shown_and_deleted(ctl: Vcctl, namespace: str) -> None:
    example = Path(__file__).parents[2] / "examples/jobs/flow.yaml"
    assert ctl("jobtemplate", "create", "-f", str(example), "-n", namespace).splitlines() == [
        f"Created JobTemplate: {namespace}/{name}" for name in ("data", "train", "report")]  # fmt: skip
    assert ctl("jobflow", "create", "-f", str(example), "-n", namespace) == f"Created JobFlow: {namespace}/pipeline\n"
    lines = [line.split() for line in ctl("jobflow", "list", "-n", namespace).splitlines()]
    assert (lines[0], lines[1][:2]) == (["Name", "Namespace", "Phase", "Age"], ["pipeline", namespace])
    assert ctl("jobflow", "get", "-N", "pipeline", "-n", namespace).splitlines()[1].startswith("pipeline")
    written = ctl("jobflow", "describe", "-N", "pipeline", "-n", namespace)
    assert yaml.safe_load(written)["spec"]["jobRetainPolicy"] == "retain"
    assert json.loads(ctl("jobflow", "describe", "-N", "pipeline", "-n", namespace, "-o", "json")) == yaml.safe_load(written)
    every = ctl("jobtemplate", "describe", "-n", namespace).split("---------------------------------\n")
    assert [yaml.safe_load(each)["metadata"]["name"] for each in every] == ["data", "report", "train"]
    assert ctl("jobflow", "delete", "-N", "pipeline", "-n", namespace) == f"Deleted JobFlow: {namespace}/pipeline\n"
    assert ctl("jobflow", "list", "-n", namespace) == "No resources found\n"
    assert len(ctl("jobtemplate", "delete", "-f", str(example), "-n", namespace).splitlines()) == 3
    assert ctl("jobtemplate", "list", "-n", namespace) == "No resources found\n"


@pytest.mark.parametrize(("words", "reported"), [
    (("job", "run"), "job name cannot be left blank: write --name NAME"), (("job", "view"), VIEW_WHICH),
    (("job", "suspend"), "job name is mandatory to suspend a particular job: write --name NAME"),
    (("job", "delete"), "job name is mandatory to delete a particular job: write --name NAME"),
    (("queue", "get"), "name is mandatory to get the particular queue details: write --name NAME"),
    (("queue", "delete"), "queue name must be specified: write --name NAME"),
    (("queue", "operate", "-n", "q"), "action can not be null: write --action open, close or update"),
    (("queue", "operate", "-n", "q", "-a", "burn"), "action burn invalid, valid actions are open, close and update"),
    (("jobtemplate", "delete"), "job template name must be specified: write --name NAME, or -f FILE"),
    (("jobflow", "delete"), "jobflow name must be specified: write --name NAME, or -f FILE"),
    (("jobtemplate", "get"), "name is mandatory to get the particular job template details: write --name NAME"),
    (("jobflow", "get"), "name is mandatory to get the particular jobflow details: write --name NAME"),
    (("job", "view", "-N", "nobody"), 'jobs.batch.volcano.sh "nobody" not found'),
])  # fmt: skip
def test_a_mistake_is_one_line_and_an_exit_code(ctl: Vcctl, words: tuple[str, ...], reported: str) -> None:
    assert ctl(*words, code=2) == f"vcctl: {reported}\n"


def test_a_short_form_says_its_own_name(ctl: Vcctl) -> None:
    assert ctl(called="vcancel", code=2) == "vcancel: job name is mandatory to cancel a particular job: write --name NAME\n"
    assert ctl("-c", "'", "-n", "x", called="vsub", code=2).startswith("vsub: --command")


def test_pods_are_listed_by_job_and_queue(api: Api, ctl: Vcctl, namespace: str) -> None:
    job, queue = {"volcano.sh/job-name": "train", "volcano.sh/queue-name": "team"}, {"scheduling.volcano.sh/queue-name": "team"}
    for name, labels, noted in (("mine", job, {}), ("bare", {}, queue), ("other", {}, {})):
        body = {"metadata": {"name": name, "labels": labels, "annotations": noted},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
        api.create(f"/api/v1/namespaces/{namespace}/pods", body)

    def names(*words: str) -> list[str]:
        return [line.split()[0] for line in ctl("pod", "list", "-n", namespace, *words).splitlines()[1:]]

    lines = ctl("pod", "list", "-n", namespace, "-j", "train").splitlines()
    assert [line.split()[:4] for line in lines] == [["Name", "Ready", "Status", "Restart"], ["mine", "0/1", "Pending", "0"]]
    assert names() == ["mine"], "those of Jobs"
    assert names("-q", "team") == ["bare", "mine"]
    assert names("-q", "team", "-j", "train") == ["mine"]
    reported = ctl("pod", "list", "-n", namespace, "-q", "else", "-j", "train", code=2)
    assert reported == "vcctl: the input vcjob train does not match the queue else\n"
