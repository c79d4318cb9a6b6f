"""Every benchmark runs to its end and finds its own result right, with ``--quick``: a figure does not outlive its program.

Those before a server and those of daemons have files of their own beside this one.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from benchmarks import running as bench
from benchmarks.tests.running import FOUND, OTHERS, PARTS, PATIENCE, assert_runs_to_its_end, quick

pytestmark = pytest.mark.timeout(PATIENCE)


@pytest.mark.parametrize("name", OTHERS)
def test_a_benchmark_runs_to_its_end_and_finds_its_result_right(name: str, tmp_path: Path) -> None:
    assert_runs_to_its_end(name, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", PARTS)
def test_a_benchmark_of_minutes_runs_whole(name: str, tmp_path: Path) -> None:
    done = quick(name, *(["--out", str(tmp_path)] if name == "native-gpu" else []), seconds=1800)
    assert done.returncode == 0, done.stderr[-3000:]


def test_openb_fills_a_cluster_task_by_task_from_a_trace(tmp_path: Path) -> None:
    nodes = [f"n{i},96000,786432,8,{'V100M16' if i % 2 else 'T4'}" for i in range(6)]
    shapes = [(1, 100 * (1 + i % 9)) if i % 7 else (2, 1000) for i in range(60)]
    tasks = [f"p{i},{2000 + 500 * (i % 5)},8192,{gpus},{milli},{'V100M16' * (i % 4 == 0)}"
             for i, (gpus, milli) in enumerate(shapes)]  # fmt: skip
    for name, head, rows in (
        ("openb_node_list_gpu_node", "sn,cpu_milli,memory_mib,gpu,model", nodes),
        ("openb_pod_list_default", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", tasks),
        ("fgd_published_summary", "pod_list,policy,alloc_pct_at_arrived_130_mean", ["default,FGD,93.5"]),
    ):
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    done = quick("openb", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["default"]["mean_at_130"] > 80
    done = quick("openb", str(tmp_path), "--two-dimensional")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["default"]["mean_at_130"] > 60
    done = quick("openb-churn", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    cell = json.loads(done.stdout)["default@0.95"]
    assert all(0 <= found["blocked"] < 50 for found in cell.values()), cell
    assert all(found["allocated"] > 50 for found in cell.values()), cell


def test_conformance_says_what_it_lacks_where_the_suite_is_not_built() -> None:
    done = quick("conformance")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "conformance: not run, for the suite is not built" in done.stderr


@pytest.mark.parametrize("name", FOUND)
def test_every_benchmark_has_a_quick_form(name: str) -> None:
    assert "--quick" in FOUND[name].flags, f"{name} does not name --quick in the usage line of its text"


SOURCES = [path for path in sorted((bench.ROOT / "benchmarks").rglob("*.py")) if "tests" not in path.parts]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_benchmark_goes_through_public_doors(path: Path) -> None:
    """A benchmark that uses names with ``_`` breaks without notice, in a traceback months later."""
    tree = ast.parse(path.read_text("utf-8"))
    own = {part.name for part in ast.walk(tree) if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    found = [
        f"line {part.lineno}: {ast.unparse(part)}" for part in ast.walk(tree)
        if isinstance(part, ast.Attribute) and part.attr.startswith("_") and not part.attr.startswith("__")
        and part.attr not in own and not (isinstance(part.value, ast.Name) and part.value.id in ("self", "cls", "os"))
    ]  # fmt: skip
    found += [f"line {part.lineno}: import {name.name}" for part in ast.walk(tree) if isinstance(part, ast.ImportFrom)
              and (part.module or "").startswith("pumice") for name in part.names
              if name.name.startswith("_") and not name.name.startswith("__")]  # fmt: skip
    assert found == []
