"""The allocation that a bound pod already holds, by the scheduler's annotation and by what the node's plugin made of it (spec
ascend 31, 34)."""

from __future__ import annotations

from pumice.devices.ascend_mindcluster.ask import CoreAsk
from pumice.devices.ascend_mindcluster.chips import IN_THE_MAKING, UNKNOWN_GROUP, in_the_making, piece_of
from pumice.devices.ascend_mindcluster.inventory import Facts
from pumice.devices.protocol import Inventory
from pumice.model.cards import Grant, Piece
from pumice.model.hardware.npu_slices import SliceKind, SliceTemplate
from pumice.model.refusal import Refusal
from pumice.wire.mindcluster import (
    NPU_CORE,
    REAL,
    WHOLE_CHIPS,
    Assignment,
    chip_name,
    parse_assignment,
    parse_real_slice,
    parse_whole_chips,
)
from pumice.wire.objects import Pod, is_admitted, is_mirror


def replay_pod(family: str, pod: Pod, node: str, inventory: Inventory, kind: SliceKind, want: CoreAsk | None) -> Grant | None:
    """``want``: what the pod asks for; None for one of another scheme. The pieces on chips that are not there (any more) are left
    out. A pod that the kubelet has admitted holds chips: where nothing says which, they may be any, and all are closed as long as
    it is there."""
    if pod.spec.node_name != node or is_mirror(pod):
        return None
    notes = pod.metadata.annotations
    if NPU_CORE not in notes:
        return _without(family, pod, node, inventory, want)
    assignment = parse_assignment(notes[NPU_CORE])
    real = notes.get(REAL, "")
    template = kind.templates.get(assignment.template) if assignment else None
    if assignment is None:
        doubts = [_doubt(pod, "", f"annotation {NPU_CORE} {notes[NPU_CORE][:80]!r} names no chip")]
    elif assignment.template and template is None:
        named = chip_name(assignment.chips[0])
        doubts = [_doubt(pod, named, f"annotation {NPU_CORE} names a template that {kind.name} does not have")]
    else:
        return _granted(family, pod, node, inventory, kind, want, assignment, template, real)
    return Grant(family, node, (), tuple(doubts))


def _granted(
    family: str, pod: Pod, node: str, inventory: Inventory, kind: SliceKind, want: CoreAsk | None, assignment: Assignment,
    template: SliceTemplate | None, real: str,
) -> Grant:  # fmt: skip
    facts: Facts = inventory.config
    doubts, group = [], IN_THE_MAKING
    if template is not None and real:
        made = parse_real_slice(real)
        group = made.group if made is not None else UNKNOWN_GROUP
        if made is None or (made.chip, made.word) != (assignment.chips[0], template.word):
            what = f"annotation {REAL} {real[:80]!r} is not what annotation {NPU_CORE} asked the plugin for"
            where = {assignment.chips[0], *([made.chip] if made is not None else ())}
            doubts += [_doubt(pod, chip_name(chip), what) for chip in sorted(where)]
    if want is not None and (reason := _contradiction(want, assignment, template)):
        doubts += [_doubt(pod, chip_name(chip), reason) for chip in assignment.chips]
    pieces = _pieces(inventory, assignment.chips, template, facts.cpus, group)
    return _settled(Grant(family, node, (pieces,) if pieces else (), tuple(doubts)))


def _pieces(
    inventory: Inventory, chips: tuple[int, ...], template: SliceTemplate | None, cpus: int, group: int
) -> tuple[Piece, ...]:
    places = inventory.config.by_uuid
    named = [places[chip_name(chip)] for chip in dict.fromkeys(chips) if chip_name(chip) in places]
    return tuple(piece_of(inventory.cards[place], template, cpus, group) for place in named)


def _settled(grant: Grant) -> Grant:
    """Read again with every change of the pod while its slice is in the making."""
    if not in_the_making(grant):
        return grant
    return Grant(grant.family, grant.node, grant.containers, grant.doubts, pending=True)


def _contradiction(want: CoreAsk, assignment: Assignment, template: SliceTemplate | None) -> str:
    if len(set(assignment.chips)) < len(assignment.chips):
        return f"annotation {NPU_CORE} names a chip twice"
    if template is not None and template.cores != want.cores:
        return f"annotation {NPU_CORE} names {template.name} where {want.cores} AI cores were asked for"
    if template is None and not want.whole:
        return f"annotation {NPU_CORE} names whole chips where {want.cores} AI cores were asked for"
    return ""


def _without(family: str, pod: Pod, node: str, inventory: Inventory, want: CoreAsk | None) -> Grant | None:
    """A pod that this scheduler gave nothing: one with whole chips of the other scheme, or one of which nothing is known."""
    chips = parse_whole_chips(pod.metadata.annotations.get(WHOLE_CHIPS, ""))
    if want is None and chips:
        pieces = _pieces(inventory, chips, None, inventory.config.cpus, IN_THE_MAKING)
        return Grant(family, node, (pieces,)) if pieces else None
    if want is None or not is_admitted(pod):
        return None
    return Grant(family, node, (), (_doubt(pod, "", f"it runs with {want.cores} AI cores and has no annotation {NPU_CORE}"),))


def _doubt(pod: Pod, card: str, text: str) -> Refusal:
    return Refusal(card, f"pod {pod.key}: {text}")
