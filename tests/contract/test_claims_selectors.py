"""Selectors of devices come to what they come to in Kubernetes: the device is taken, is not, or the expression is an error."""

from __future__ import annotations

import pytest
from kit.claim_answers import Kubernetes
from kit.claims import DRIVER, Cluster, asks, claim, published

OWN = f'device.attributes["{DRIVER}"]'
CAPACITY = f'device.capacity["{DRIVER}"]'
DEVICE = {
    "name": "d0", "allowMultipleAllocations": True,
    "attributes": {"model": {"string": "H100"}, "minor": {"int": 3}, "ecc": {"bool": True}, "fw": {"version": "1.2.3-rc.1"},
                   "other.example.com/rack": {"string": "r7"}},
    "capacity": {"memory": {"value": "80Gi"}, "cores": {"value": "100"}, "half": {"value": "500m"}},
}  # fmt: skip
EXPRESSIONS = r"""
true
false
1
'x'
device
device.driver
OWN.ecc
OWN.model
OWN.none
!OWN.ecc
device.driver == "gpu.example.com"
device.nothing == 1
nobody == 1
device.driver ==
device.driver == 1
OWN.model == "H100"
OWN.model == "h100"
OWN["model"] == "H100"
OWN.model == 1
OWN.minor == 3
OWN.minor > 2 && OWN.minor < 4
OWN.minor > "2"
OWN.minor + 1 == 4
OWN.minor / 0 == 1
"model" in OWN
"none" in OWN
has(OWN.model)
has(OWN.none)
OWN.?none.orValue("x") == "x"
OWN[?"model"].hasValue()
OWN.none == "x" || true
OWN.none == "x" && false
true || OWN.none == "x"
"gpu.example.com" in device.attributes
"none.example.com" in device.attributes
device.attributes["none.example.com"].x == 1
has(device.attributes["none.example.com"].x)
device.attributes["other.example.com"].rack == "r7"
device.attributes["none.example.com"].size() == 0
size(OWN) == 4
OWN.exists(name, name == "fw")
OWN.all(name, name != "none")
cel.bind(own, OWN, own.model == "H100" && own.ecc)
OWN.model.startsWith("H")
OWN.model.matches("^H[0-9]+$")
OWN.model.matches("(")
OWN.model.lowerAscii() == "h100"
OWN.model in ["A100", "H100"]
OWN.model.split("1")[0] == "H"
OWN.fw.compareTo(semver("1.2.3")) < 0
OWN.fw.isGreaterThan(semver("1.2.3-rc.0"))
OWN.fw == semver("1.2.3-rc.1")
OWN.fw.major() == 1 && OWN.fw.minor() == 2 && OWN.fw.patch() == 3
OWN.fw == "1.2.3-rc.1"
semver("1.2") == semver("1.2")
OWN.fw.isLessThan(semver("v2", true))
isSemver("1.2.3") && !isSemver("1.2") && isSemver("v1.2", true)
OWN.model.major() == 1
CAPACITY.memory.compareTo(quantity("80Gi")) == 0
CAPACITY.memory.isLessThan(quantity("81920Mi"))
CAPACITY.memory == quantity("80Gi")
CAPACITY.memory > quantity("1Gi")
CAPACITY.memory.sub(quantity("40Gi")).asInteger() > 0
CAPACITY.cores.asInteger() == 100
CAPACITY.half.asInteger() == 1
CAPACITY.half.isInteger()
CAPACITY.none.compareTo(quantity("1")) == 0
quantity("x") == quantity("1")
device.allowMultipleAllocations
device.allowMultipleAllocations == true
device.attributes.size() == 2
[1, 2, 3].sum() == 6
'abc'.charAt(1) == 'b'
[[1, 2], [3]].all(row, row.all(one, one > 0))
url('https://a.b/c').getHost() == 'a.b'
ip('10.0.0.1').family() == 4
string(1) == '1' && int('1') == 1
duration('1m') == duration('60s')
type(device.driver) == string
'a' + 1 == 'a1'
{'a': 1}.a == 1
[1][5] == 1
device.driver.size() > 0 ? true : 1 == 1
optional.none().hasValue()
device.attributes.exists(domain, domain == 'other.example.com')
sets.contains(['a'], ['a'])
object.spec == 1
self.x == 1
authorizer.path('/x').check('get').allowed()
""".strip().splitlines()
TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
COSTS_TOO_MUCH = f"{TEN}.all(a, " * 7 + "true" + ")" * 7
WIDER = ['["a", OWN.model].exists(one, one == "H100")', "math.greatest(1, 2) == 2"]
"""Kubernetes stores no such selector; here it is evaluated: no list has to be of one type, and numbers have their library."""


def _answers(expression: str, allocator: Kubernetes) -> tuple[str, str, str]:
    """Ours, Kubernetes', and what was said."""
    written = expression.replace("OWN", OWN).replace("CAPACITY", CAPACITY)
    cluster, requested = Cluster(published(DEVICE)), claim(asks(expression=written))
    there, said = allocator(cluster.question(requested))
    lines = cluster.gives(requested)
    here = "ok" if lines == ["g d0"] else "none" if "cannot be allocated" in lines[0] else "error"
    return here, there, f"{lines} here, {said} there"


@pytest.mark.parametrize("expression", [*EXPRESSIONS, COSTS_TOO_MUCH])
def test_a_selector_comes_to_the_same(expression: str, allocator: Kubernetes) -> None:
    here, there, said = _answers(expression, allocator)
    assert here == there, said


@pytest.mark.parametrize("expression", WIDER)
def test_some_selectors_are_wider_here(expression: str, allocator: Kubernetes) -> None:
    assert _answers(expression, allocator)[:2] == ("ok", "error")
