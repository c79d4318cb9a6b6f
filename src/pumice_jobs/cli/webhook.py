"""``pumice webhook``: the admission server of Volcano's kinds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pumice.cli import flags
from pumice.cli.daemon import Kubeconfig, LogAs, LogFormat, LogLevel, Verbosity, run_daemon, setup_logging
from pumice.cli.upstream_flags import as_upstream_writes
from pumice.model.errors import BadInput
from pumice.wire.names import ADMISSION_SERVICE, SCHEDULER_NAME, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from pumice_jobs.admission.review import ResourceGroup

ENABLED: Final = (
    "/jobs/mutate,/jobs/validate,/podgroups/validate,/queues/mutate,/queues/validate,/hypernodes/validate,/cronjobs/validate"
)
"""Those that are registered where nothing is said (``admission.rules``), so that the help can name them alone."""

app = flags.App()


@app.command(epilog="Example: pumice webhook --enabled-admission /jobs/mutate,/jobs/validate", rewrite=as_upstream_writes)
def main(
    kubeconfig: Kubeconfig = None,
    enabled_admission: Annotated[str, flags.Option(help="What is decided, by path.")] = ENABLED,
    share_claims: Annotated[bool, flags.Option(
        help="Write shares that pods and Jobs ask by resource as claims, in namespaces labelled pumice.io/claims=on.")] = False,
    listen_address: Annotated[str, flags.Option(help="Address to listen on; the port is --port.")] = "",
    port: Annotated[int, flags.Option(min=0, max=65535, help="Port of the asks.")] = 8443,
    healthz_address: Annotated[str, flags.Option(help="Address of /metrics, /healthz and /readyz.")] = ":11251",
    admission_conf: Annotated[Path | None, flags.Option(help="File with resourceGroups for /pods/mutate.")] = None,
    scheduler_name: Annotated[str, flags.Option(help="What a Job without one gets.")] = SCHEDULER_NAME,
    webhook_namespace: Annotated[str, flags.Option(help="Namespace of the Service, and of the certificate's Secret.")] =
        SYSTEM_NAMESPACE,
    webhook_service_name: Annotated[str, flags.Option(help="Service under which the API server reaches this.")] =
        ADMISSION_SERVICE,
    webhook_url: Annotated[str, flags.Option(help="URL under which it does, in place of a Service.")] = "",
    register: Annotated[bool, flags.Option(help="Tell the API server to ask.")] = True,
    max_queue_depth: Annotated[int, flags.Option(min=1, help="Levels that a tree of queues may have.")] = 5,
    enable_root_queue_protection: Annotated[bool, flags.Option(help="Keep the root queue's resources as they are.")] = True,
    enable_queue_allocated_pods_check: Annotated[
        bool, flags.Option(help="Keep queues that hold pods from being deleted or becoming parents.")] = False,
    tls_cert_file: Annotated[Path | None, flags.Option(help="Certificate; without it one is made and renewed.")] = None,
    tls_private_key_file: Annotated[Path | None, flags.Option(help="Its key.")] = None,
    ca_cert_file: Annotated[Path | None, flags.Option(help="What the API server shall trust.")] = None,
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
    verbosity: Verbosity = 3,
) -> None:  # fmt: skip
    """Refuse what makes no sense, and fill in what is left out, of Volcano's kinds and, where asked, of pods."""
    from pumice_jobs.admission import review
    from pumice_jobs.admission.rules import SHARES_TO_CLAIMS
    from pumice_jobs.apps.webhook import daemon
    from pumice_jobs.apps.webhook.registering import Place

    setup_logging(log_format, log_level, verbosity)
    files = tls_cert_file, tls_private_key_file, ca_cert_file
    if any(files) and not all(files):
        raise BadInput("--tls-cert-file, --tls-private-key-file and --ca-cert-file belong together; give all three or none")
    settings = daemon.Settings(
        rules=review.Settings(scheduler_name, max_queue_depth, enable_root_queue_protection, enable_queue_allocated_pods_check,
                              _resource_groups(admission_conf)),
        paths=tuple(dict.fromkeys((*daemon.paths_of(enabled_admission), *(SHARES_TO_CLAIMS if share_claims else ())))),
        listen=f"{listen_address}:{port}",
        health=healthz_address,
        place=Place(webhook_namespace, webhook_service_name, webhook_url,
                    (str(files[0]), str(files[1]), str(files[2])) if all(files) else None, register, scheduler_name),
    )  # fmt: skip
    run_daemon(lambda settings, rng, **world: daemon.run(settings, **world), settings, kubeconfig, "pumice-webhook")


def _resource_groups(path: Path | None) -> tuple[ResourceGroup, ...]:
    if path is None:
        return ()
    from pumice.cli.streams import read
    from pumice.wire.document import read_document
    from pumice_jobs.admission.pods import groups_of

    value = read_document(read(path), file=str(path)).value or {}
    try:
        return groups_of(value.get("resourceGroups") or [])
    except (ValueError, AttributeError) as error:
        raise BadInput(f"{path}: {error}") from error
