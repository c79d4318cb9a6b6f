"""Any text is a scheduler configuration or refused in one line, and what is rendered is read back."""

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.model.errors import BadInput
from pumice.wire.scheduler_conf import (
    OFF_BY_DEFAULT,
    PLUGIN_ARGUMENTS,
    SWITCHES,
    PluginConf,
    SchedulerConf,
    parse_scheduler_conf,
)

confs = st.builds(
    SchedulerConf,
    actions=st.lists(st.sampled_from(["enqueue", "allocate", "backfill"]), min_size=1, max_size=3).map(tuple),
    tiers=st.lists(
        st.lists(
            st.builds(
                PluginConf,
                name=st.sampled_from(sorted(PLUGIN_ARGUMENTS.keys() - {"proportion"})),
                off=st.frozensets(st.sampled_from(SWITCHES)),
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
        min_size=1,
        max_size=3,
    ).map(tuple),
)


def render_scheduler_conf(conf: SchedulerConf) -> str:
    """The YAML text that parses to the same configuration (warnings apart)."""
    def plugin(entry: PluginConf) -> dict[str, Any]:
        switches: dict[str, Any] = {}
        for name in SWITCHES:
            if (name in entry.off) != (name in OFF_BY_DEFAULT):
                switches[f"enable{name}"] = name not in entry.off
        return {"name": entry.name, **switches, **({"arguments": dict(entry.arguments)} if entry.arguments else {})}

    body: dict[str, Any] = {"actions": ", ".join(conf.actions)}
    body["tiers"] = [{"plugins": [plugin(p) for p in tier]} for tier in conf.tiers]
    if conf.configurations:
        body["configurations"] = [{"name": n, "arguments": dict(a)} for n, a in conf.configurations.items()]
    if conf.metrics:
        body["metrics"] = dict(conf.metrics)
    return str(yaml.safe_dump(body, sort_keys=False))


@given(confs)
def test_what_is_rendered_is_read_back(conf: SchedulerConf) -> None:
    again = parse_scheduler_conf(render_scheduler_conf(conf))
    assert again.actions == conf.actions
    assert [[(p.name, p.off) for p in t] for t in again.tiers] == [[(p.name, p.off) for p in t] for t in conf.tiers]


@settings(deadline=None)  # the first text loads the YAML reader
@given(st.text(max_size=200))
def test_no_text_raises_anything_but_bad_input_of_one_line(text: str) -> None:
    complaint = ""
    try:
        parse_scheduler_conf(text)
    except BadInput as error:
        complaint = str(error)
    assert "\n" not in complaint
