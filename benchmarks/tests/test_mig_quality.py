"""The MIG policies keep what ``benchmarks/mig_streams.py`` and ``mig_instances.py`` promise, on a sample of them."""

from __future__ import annotations

from benchmarks import mig_instances, mig_streams


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
