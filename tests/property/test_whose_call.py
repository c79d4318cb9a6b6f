"""Allocate names no pod: in whatever order calls, watches, lists and restarts fall, nobody starts with another's share."""

from __future__ import annotations

import random

import pytest
from kit.admitting import AdmittingKubelet
from kit.plugin_world import World, in_a_world
from kit.seeds import chosen_seed
from tests.property.whose_call import play


@pytest.mark.parametrize("seed", [chosen_seed() + at for at in range(4)])
def test_without_cdi_no_container_starts_with_another_pods_share_in_any_order_of_watch_list_and_calls(seed):
    async def story(world: World) -> None:
        await play(world, seed)

    in_a_world(story, kubelet=lambda folder: AdmittingKubelet(folder, random.Random(seed)))()


@pytest.mark.parametrize("seed", [chosen_seed() + at for at in range(4)])
def test_with_cdi_every_container_starts_with_its_own_share_and_none_is_refused_whatever_is_cut_off_or_restarted(seed):
    async def story(world: World) -> None:
        await play(world, seed, strict=True)

    in_a_world(story, kubelet=lambda folder: AdmittingKubelet(folder, random.Random(seed), folder.parent / "cdi"))()
