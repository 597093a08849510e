# SPDX-License-Identifier: Apache-2.0
"""Tests the model of many workers, and the command that prints its tables."""

import json
import math
import random
import statistics

import helpers
import pytest

pytest.importorskip("rich", reason="the extra [bench] is not installed")

from benchmarks import worker_model as model
from benchmarks import workers as command
from tf_compat_lossscale import policies

pytestmark = pytest.mark.any_release


@pytest.mark.parametrize("workers", [1, 7, 64])
def test_draw_is_the_largest_of_all_workers(workers):
  gradients = model.Gradients(mean=-3.0, deviation=2.0)
  source = random.Random(1)
  drawn = [math.log2(gradients.draw(workers, source)) for _ in range(10000)]
  own = [
    max(source.gauss(-3.0, 2.0) for _ in range(workers)) for _ in range(10000)
  ]
  assert statistics.mean(drawn) == pytest.approx(statistics.mean(own), abs=0.06)
  assert statistics.stdev(drawn) == pytest.approx(
    statistics.stdev(own), rel=0.05
  )


@pytest.mark.parametrize("workers", [1, 64, 16384])
def test_overflows_are_as_likely_as_computed(workers):
  gradients = model.Gradients(broken=1e-6)
  source = random.Random(2)
  power = {1: 18, 64: 17, 16384: 15}[workers]
  expected = gradients.find_overflow(power, workers)
  limit = model.FLOAT16_LARGEST / 2**power
  count = 40000
  found = sum(gradients.draw(workers, source) > limit for _ in range(count))
  deviation = math.sqrt(count * expected * (1 - expected))
  assert 0.0005 < expected < 0.5
  assert abs(found - count * expected) < 4 * deviation


def test_any_worker():
  assert model.find_any(0.5, 2) == pytest.approx(0.75)
  assert model.find_any(1e-18, 10**6) == pytest.approx(1e-12)  # All digits.
  assert model.find_any(0.0, 100) == 0
  assert model.find_any(1.0, 100) == 1


@pytest.mark.parametrize("workers", [1, 1024])
@pytest.mark.parametrize("broken", [0.0, 1e-5])
def test_simulation_settles_where_the_chain_does(workers, broken):
  gradients = model.Gradients(broken=broken)
  rule = policies.GrowthBackoffRule(growth_interval=100)
  found = model.simulate(rule, gradients, workers, 100_000)
  shares = model.find_stationary(gradients, workers, 100)
  assert sum(shares.values()) == pytest.approx(1)
  skipped = sum(
    share * gradients.find_overflow(power, workers)
    for power, share in shares.items()
  )
  assert found.skipped == pytest.approx(skipped, rel=0.1)
  middle = sum(power * share for power, share in shares.items())
  assert found.scale == pytest.approx(middle, abs=0.8)


def test_more_workers_settle_lower():
  rule = policies.GrowthBackoffRule(growth_interval=200)
  gradients = model.Gradients(broken=1e-5)
  found = [model.simulate(rule, gradients, n, 20000) for n in (1, 64, 16384)]
  assert found[0].scale > found[1].scale > found[2].scale == 0
  again = model.simulate(rule, gradients, 64, 20000)
  assert again == found[1]
  assert model.simulate(rule, gradients, 64, 20000, seed=1) != again


def test_costs():
  network = model.Network("a", latency=1e-3, bandwidth=1e6)
  # Seven rounds to and fro in a ring of 8, and three levels of a tree.
  assert network.time_ring(8e6, 8) == pytest.approx(14 * (1e-3 + 1))
  assert network.time_tree(8e6, 8) == pytest.approx(6 * (1e-3 + 8))
  assert network.time_best(8e6, 8) == network.time_ring(8e6, 8)
  assert network.time_best(4, 8) == network.time_tree(4, 8)
  assert network.time_best(4, 1) == 0
  costs = model.find_costs(network, 1024, 1e6)
  assert costs["fused"] < costs["tree"] < costs["ring"]


def test_command(tmp_path, capsys):
  path = tmp_path / "figures.json"
  command.main(f"--workers 1 64 --steps 500 --broken 0 --json {path}".split())
  printed = capsys.readouterr().out
  assert "LogNormal" in printed and "64 workers" in printed
  figures = json.loads(path.read_text())
  assert set(figures["policies"]["0.0"]) == set(model.POLICIES)
  assert {row["workers"] for row in figures["costs"]} == {64}


@pytest.mark.parametrize(
  "line, words",
  [
    ("--workers 0", "'0' must be a whole number of at least 1"),
    ("--workers many", "'many' must be a whole number of at least 1"),
    ("--broken 1", "'1' must be from 0 to below 1"),
    ("--deviation nan", "'nan' must be a number above 0"),
    ("--json no/such/folder/x --steps 5", "No such file or directory"),
    ("--speed 5", "unrecognized arguments"),
  ],
)
def test_mistakes_are_one_line(line, words, capsys):
  with pytest.raises(SystemExit) as raised:
    command.main(line.split())
  assert raised.value.code == 2
  printed = capsys.readouterr().err
  assert words in printed
  assert len(printed.splitlines()) == 1


@pytest.mark.thorough
def test_page_has_the_tables_as_printed(tmp_path):
  path = tmp_path / "figures.json"
  command.main(["--json", str(path), "--workers", "16384"])
  figures = json.loads(path.read_text())
  page = (helpers.ROOT / "docs/many-workers.md").read_text("utf-8")
  rows = [line for line in page.splitlines() if line.startswith("| ")]
  printed = [
    (name, f" 2^{one['16384']['scale']:.0f}, {one['16384']['skipped']:.2%} |")
    for found in figures["policies"].values()
    for name, one in found.items()
  ]
  names = {name for name, _ in printed}
  written = [row for row in rows if row.split(" | ")[0][2:] in names]
  assert len(written) == len(printed) == 3 * len(model.POLICIES)
  for row, (name, cell) in zip(written, printed):
    assert row.startswith(f"| {name} |") and row.endswith(cell)


def test_page_has_the_costs_as_printed():
  page = (helpers.ROOT / "docs/many-workers.md").read_text("utf-8")
  for row in command.find_costs(command._parse([])):
    shares = [
      f"{1e3 * row[way]:.3g} ({row[way] / row['gradients']:.1%})"
      for way in ("ring", "tree", "fused")
    ]
    cells = [
      row["network"],
      f"{row['megabytes']:g}",
      f"{row['workers']:,}",
      f"{1e3 * row['gradients']:.4g}",
      *shares,
    ]
    assert f"| {' | '.join(cells)} |" in page


def test_needs_no_tensorflow():
  code = "import sys, benchmarks.workers; print('tensorflow' in sys.modules)"
  assert helpers.run_python("-c", code).strip() == "False"


if __name__ == "__main__":
  helpers.main()
