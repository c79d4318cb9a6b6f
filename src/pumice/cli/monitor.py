"""``pumice monitor``: metrics of this node's cards and containers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.daemon import Kubeconfig, LogAs, LogFormat, LogLevel, bind_address, node_name, run_daemon, setup_logging
from pumice.wire import variables

app = flags.App(help="Serve metrics of this node's cards and of the containers on them.")


@app.command(epilog="Example: NODE_NAME=n1 pumice monitor --metrics-bind-address 127.0.0.1:9394")
def monitor(
    node: Annotated[str, flags.Option("--node-name", envvar="NODE_NAME", help="This node's name.")] = "",
    kubeconfig: Kubeconfig = None,
    hook_path: Annotated[Path, flags.Option(envvar="HOOK_PATH", help="The plugin's host folder.")] = Path(
        "/usr/local/vgpu"
    ),
    containers_dir: Annotated[
        Path | None, flags.Option(help="Folder of the containers' regions; default: vgpu/containers in the hook path.")
    ] = None,
    metrics_bind_address: Annotated[str, flags.Option(help="ADDRESS:PORT to serve on.")] = ":9394",
    legacy_metrics: Annotated[bool, flags.Option(help="Also the families with values in their labels.")] = True,
    device_config_namespace: Annotated[
        str, flags.Option(envvar="DEVICE_CONFIG_NAMESPACE", help="Where to look first for the device ConfigMap.")
    ] = "",
    feedback: Annotated[
        bool, flags.Option(help="Let less important work wait for more important work on the same card.")
    ] = True,
    feedback_max_wait: Annotated[
        float, flags.Option(min=0.0, help="Seconds after which work that waits goes on for a round; 0: it waits without end.")
    ] = 60.0,
    nvml: Annotated[str, flags.Option(envvar=variables.NVML, help="NVML library or its folder; empty: system's.")] = "",
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
) -> None:
    """Serve metrics of this node's cards and of the containers on them."""
    from pumice.apps.monitor import daemon as service

    address, port = bind_address(metrics_bind_address, "--metrics-bind-address")
    settings = service.Settings(
        node_name=node_name(node),
        hook_path=hook_path,
        containers_dir=containers_dir,
        address=address,
        port=port,
        nvml=nvml,
        config_namespace=device_config_namespace,
        legacy_metrics=legacy_metrics,
        feedback=feedback,
        max_wait=feedback_max_wait,
    )
    setup_logging(log_format, log_level)
    run_daemon(service.run, settings, kubeconfig, "pumice-monitor")
