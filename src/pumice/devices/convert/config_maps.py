"""Device ConfigMaps: HAMi keeps cards and chips in one of its own; here cards stand in Volcano's, chips where HAMi has them."""

from __future__ import annotations

from collections.abc import Callable

import yaml

from pumice.devices.convert.edits import Draft, child, documents, entries, items, mappings, word
from pumice.devices.convert.objects import Way
from pumice.model.errors import BadInput
from pumice.wire import hami_names, names, node_config
from pumice.wire.device_config_text import KEYS, SECTIONS
from pumice.wire.document import has_key
from pumice.wire.hami_names import To
from pumice.wire.without_effect import What, rows

UNSET = ("", "0", "false", "False", "default")
"""Values that ask for nothing."""
HOME = names.DEVICE_CONFIG_NAMESPACE
Convert = Callable[[Draft, yaml.Node, Way], None]


def convert_config_map(draft: Draft, root: yaml.Node, way: Way) -> None:
    sections: set[str] = set()
    of_nodes = False
    for key, value in entries(child(root, "data")):
        if not isinstance(value, yaml.ScalarNode):
            continue
        text = value.value
        if key.value == names.DEVICE_CONFIG_KEY or has_key(text, *SECTIONS):
            sections |= _inside(draft, value, way, convert_devices)
        elif key.value == names.NODE_CONFIG_KEY and node_config.LIST in text:
            of_nodes = True
        elif hami_names.KUBE_SCHEDULER_CONF in text and way.to is not To.HAMI:
            here = f"{names.SCHEDULER_CONF_KEY} of ConfigMap {names.SYSTEM_NAMESPACE}/{names.SCHEDULER_CONFIGMAP}"
            draft.keep(key, key.value, f"it configures kube-scheduler for HAMi; here {here} does")
        elif key.value == names.SCHEDULER_CONF_KEY or has_key(text, "tiers"):
            _inside(draft, value, way, _scheduler_conf)
    _called(draft, root, way, sections, of_nodes=of_nodes)


def _inside(draft: Draft, value: yaml.ScalarNode, way: Way, convert: Convert) -> set[str]:
    """Convert the document that a text holds; its sections."""
    inner = Draft(draft.file, value.value, draft.line(value) + (value.style in ("|", ">")))
    try:
        found = documents(draft.file, inner.text, inner.first_line)
    except BadInput as error:
        draft.keep(value, "the text", f"it cannot be read ({error})")
        return set()
    for document in found:
        convert(inner, document, way)
    if (text := inner.result()) != value.value:
        draft.replace(value, text)
    draft.changes += inner.changes
    draft.left += inner.left
    return {key.value for document in found for key, _ in entries(document)}


def convert_devices(draft: Draft, root: yaml.Node, way: Way) -> None:
    """A document with sections of cards and of chips."""
    for section, value in entries(root):
        if section.value not in SECTIONS and way.to is not To.HAMI:
            draft.keep(section, section.value, "nothing here shares these devices")
        for key, said in entries(value) if section.value == names.CARDS_SECTION else ():
            _card_key(draft, value, key, said, way)
    if way.to is To.HAMI:
        return
    for name, row in rows(What.DEVICES).items():
        owner, _, below = name.partition(".")
        chips = child(root, owner, "configs") or child(root, owner)
        for entry in items(chips) if owner == names.CHIPS_SECTION else ():
            for key, said in entries(entry):
                if key.value == below and not _unset(said):
                    draft.keep(key, below, row.consequence)


def _card_key(draft: Draft, section: yaml.Node, key: yaml.ScalarNode, said: yaml.Node, way: Way) -> None:
    name = key.value
    if name in way.config_keys and isinstance(section, yaml.MappingNode):
        draft.rename_key(section, key, way.config_keys[name], "MiB that one unit of memory stands for")
    elif name in way.lost_keys:
        if not _unset(said):
            draft.keep(key, name, way.lost_keys[name])
    elif name.startswith("resource") and isinstance(said, yaml.ScalarNode) and said.value in way.renamed:
        draft.rename(said, way.renamed[said.value], "the name of the resource")
    elif way.to is not To.HAMI and name not in KEYS and not _unset(said):
        draft.keep(key, name, "nobody reads it here")


def _unset(said: yaml.Node) -> bool:
    return isinstance(said, yaml.ScalarNode) and said.value in UNSET


def _scheduler_conf(draft: Draft, root: yaml.Node, way: Way) -> None:
    """The keys that only our scheduler reads of it."""
    for mapping in mappings(root):
        for key, _ in entries(mapping):
            if key.value.startswith("pumice.") and way.to is not To.PUMICE:
                draft.keep(key, key.value, "only Pumice reads it; Volcano logs a warning")


def _called(draft: Draft, root: yaml.Node, way: Way, sections: set[str], *, of_nodes: bool) -> None:
    """The ConfigMap's own name and namespace."""
    named, home = child(root, "metadata", "name"), child(root, "metadata", "namespace")
    wanted = ""
    if way.to is To.HAMI:
        theirs = {names.DEVICE_CONFIGMAP: names.NPU_CONFIGMAP, names.NODE_CONFIGMAP: hami_names.HAMI_NODE_MAP}
        wanted = theirs.get(word(named), "")
    elif of_nodes and word(named).endswith(hami_names.NODE_MAPS):
        wanted = names.NODE_CONFIGMAP
    elif word(named).endswith(hami_names.DEVICE_MAPS) and sections & set(SECTIONS):
        wanted = names.DEVICE_CONFIGMAP if names.CARDS_SECTION in sections else names.NPU_CONFIGMAP
    if not wanted or not isinstance(named, yaml.ScalarNode):
        return
    if named.value != wanted:
        draft.rename(named, wanted, "where scheduler and plugins look for it")
    if isinstance(home, yaml.ScalarNode) and home.value != HOME:
        draft.rename(home, HOME, "where scheduler and plugins look for it")
