# SPDX-License-Identifier: Apache-2.0
"""Tests the tool that trains a float16 network with several policies."""

import helpers
import numpy as np
import plot_policies
import pytest

from tf_compat_lossscale import policies

pytestmark = [pytest.mark.any_release, pytest.mark.thorough]

_STEPS = 60


@pytest.fixture(scope="module", name="runs")
def _train():
  data = plot_policies.DATA["log-normal"]
  # A run begins with an overflow if the first scale is large.
  makers = {
    "DynamicLossScale": plot_policies.POLICIES["DynamicLossScale"],
    "like megatron": plot_policies.POLICIES["like megatron"],
    "again": plot_policies.POLICIES["like megatron"],
  }
  return {
    name: plot_policies.train(make, data, _STEPS)
    for name, make in makers.items()
  }


def test_gradients_overflow_and_the_scale_follows(runs):
  megatron = policies.find_rule("megatron", growth_interval=100)
  for name, rule in (
    ("DynamicLossScale", policies.GrowthBackoffRule(growth_interval=100)),
    ("like megatron", megatron),
  ):
    run = runs[name]
    finite = [step not in run.lost for step in range(_STEPS)]
    assert run.scales == rule.simulate(finite)
  assert not runs["DynamicLossScale"].lost
  assert len(runs["like megatron"].lost) >= 2
  assert runs["like megatron"].scales[-1] < 2.0**32


def test_runs_are_the_same_each_time(runs):
  assert runs["again"] == runs["like megatron"]


def test_the_network_learns():
  data = plot_policies.DATA["log-normal"]
  make = plot_policies.POLICIES["LogNormal"]
  first = plot_policies.train(make, data, 1)
  last = plot_policies.train(make, data, 200)
  assert last.easy_loss < 0.5 * first.easy_loss


@pytest.mark.parametrize("data", plot_policies.DATA.values())
def test_a_share_of_the_batches_is_hard(data):
  random = np.random.default_rng(3)
  factors = [data.draw_hardness(random) for _ in range(20000)]
  assert np.mean(np.array(factors) > data.limit) == pytest.approx(
    0.04, abs=0.005
  )


def test_table(runs):
  table = plot_policies.format_table(runs)
  header, line, first, *_ = table.splitlines()
  assert len(table.splitlines()) == 2 + len(runs)
  assert header.count("|") == line.count("|") == first.count("|")
  hard = len(runs["DynamicLossScale"].hard)
  assert first.startswith(f"| DynamicLossScale | 0.00% | 0 of {hard} | ")
  assert first.endswith(" | 2^15 |")


def test_picture(tmp_path, runs):
  pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
  plot_policies.draw(runs, tmp_path / "new.png")
  assert (tmp_path / "new.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
  ("arguments", "what"),
  [(["no/such/folder/a.png"], "no/such/folder"), (["a", "b"], "a b")],
)
def test_mistakes(capsys, arguments, what):
  with pytest.raises(SystemExit) as caught:
    plot_policies.main(arguments)
  assert caught.value.code == 2
  printed, error = capsys.readouterr()
  assert error.startswith("tools/plot_policies.py: ") and what in error
  assert error.count("\n") == 1 and not printed


if __name__ == "__main__":
  helpers.main()
