"""An amount of memory is taken as people write it, by every command that reads one."""

from __future__ import annotations

import pytest

from pumice.adapters.load import Load
from pumice.cli import burn, reading
from pumice.local.request import parse_memory
from pumice.model.amount import mebibytes, size_of
from pumice.model.errors import BadInput

AMOUNTS = {
    "3000": 3000, "3000M": 3000, "3000MB": 3000, "3000MiB": 3000, "3g": 3072, "3G": 3072, "3GB": 3072, "3gib": 3072,
    "2.5G": 2560, "2 GB": 2048, "1T": 1 << 20, "0.5t": 1 << 19, "4096K": 4, "4096kib": 4, "3221225472B": 3072, "0.3g": 307,
}  # fmt: skip


@pytest.mark.parametrize("text", AMOUNTS)
def test_an_amount_may_carry_any_binary_unit_and_is_the_same_everywhere(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mib = AMOUNTS[text]
    assert mebibytes("--memory", text) == mib
    assert parse_memory(text) == (mib, 0)
    requested: list[Load] = []
    monkeypatch.setattr(burn, "carry_out", lambda load, as_json: requested.append(load))
    with pytest.raises(SystemExit):
        reading.run(burn.app.build(), ["--memory", text, "--block", text])
    assert [(load.memory >> 20, load.block >> 20) for load in requested] == [(mib, mib)]


NONSENSE = {
    "3GX": "did you mean 3GiB?",
    "2,5 gigs": "did you mean 2.5GiB?",
    "3 megabyte": "did you mean 3MiB?",
    "many": "MiB such as 3000",
    "1e3": "MiB such as 3000",
    "0.5": "MiB such as 3000",
    "-5": "MiB such as 3000",
    "": "MiB such as 3000",
    "0": "at least 1 MiB",
    "1000K": "at least 1 MiB",
    "99999999T": "at most 2147483647 MiB",
    "101%": "1% to 100%",
}


@pytest.mark.parametrize(("text", "words"), NONSENSE.items())
def test_what_is_no_amount_is_refused_with_the_nearest_right_thing(text: str, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_memory(text)
    assert str(refused.value).startswith(f"--memory {text}: ")
    assert words in str(refused.value)
    assert size_of(text) is None or text in ("0", "1000K", "99999999T")
