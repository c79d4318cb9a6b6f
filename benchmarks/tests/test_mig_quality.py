"""The MIG policies keep what ``benchmarks/mig_*.py`` promise, on a sample of them."""

from __future__ import annotations

from benchmarks import mig_instances, mig_memory, mig_streams


def test_both_policies_come_closer_to_the_offline_optimum_than_upstreams_rule_in_every_mix() -> None:
    for mix, lost in mig_instances.distances(60).items():
        assert lost["tightest"] < lost["upstream"], mix
        assert lost["expected"] < lost["upstream"], mix


def test_a_stream_at_full_load_fills_the_cards_better_than_upstreams_rule() -> None:
    geometry = mig_streams.a100()
    mean = {}
    for rule in mig_streams.RULES:
        cells = [mig_streams.run(geometry, rule, mix, 1.0, 1, 2_500)[0] for mix in mig_streams.MIXES.values()]
        mean[rule] = sum(cells) / len(cells)
    assert min(mean["tightest"], mean["expected"]) > mean["upstream"] + 3, mean


def test_the_default_closes_most_of_the_way_to_any_place_through_the_engines_own_path() -> None:
    used = mig_memory.cell("A100-40", 1.2, seeds=4, arrivals=500)
    assert mig_memory.closed(used) >= mig_memory.ENOUGH, used
    assert used[mig_memory.DEFAULT] > used[mig_memory.UPSTREAM]
