# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of models with several optimizers and loss scales."""

import functools

import helpers
import numpy as np
import pytest
from saved_graphs import adam_on
from saved_graphs import dynamic
from saved_graphs import save
from saved_graphs import variable
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1


_KINDS = {
  "v1": None,
  "v2": None,
  "contrib": lambda opt, i: tfl.contrib.LossScaleOptimizer(
    opt, tfl.contrib.ExponentialUpdateLossScaleManager(2.0**i, 4)
  ),
  "fp32": lambda opt, i: opt,
}


def build_several(kind, scope):
  """Builds three optimizers of a kind in a scope, or in none if it is empty."""
  with tf1.variable_scope(scope):
    adam_on(["gen", "disc", "other"], what=_KINDS[kind])


@pytest.fixture(scope="module")
def saved_several(tmp_path_factory):
  """Saves three optimizers of each kind; returns (kind, scope) -> path."""
  folder, paths = tmp_path_factory.mktemp("several"), {}
  for kind in _KINDS:
    for scope in ("", "net"):
      build = functools.partial(build_several, kind, scope)
      with helpers.control_flow(kind == "v2"):
        paths[kind, scope] = save(folder, build, f"{kind}{scope}")
  return paths


def check_several(source, target, values, report):
  """Checks that each optimizer has its own powers and its own loss scale."""
  powers = sorted(
    float(value) for name, value in values.items() if "beta1_power" in name
  )
  np.testing.assert_allclose(powers, [0.53, 0.54, 0.55], rtol=1e-6)
  by_scope = {"gen": 0.53, "disc": 0.54, "other": 0.55}
  by_number = {"power": 0.53, "power_1": 0.54, "power_2": 0.55}
  for name in values:
    if "beta1_power" in name:
      scope, _, last = name.replace("net/", "").rpartition("/")
      power = by_scope[scope.split("/")[0]] if scope else by_number[last[6:]]
      assert values[name] == np.float32(power), (name, report)
  scales = {
    name.replace("net/", "").split("/")[0]: value
    for name, value in values.items()
    if name.endswith("loss_scale")
  }
  if target == "fp32":
    assert not scales
  else:
    # An initialized scale has the same value, so the report must say which.
    assert scales == {"gen": 8, "disc": 16, "other": 32}
  if source != "fp32" or target == "fp32":
    assert not report.initialized
  else:
    assert len(report.initialized) == (9 if target == "contrib" else 6)


@pytest.mark.thorough
@pytest.mark.parametrize("scope", ["", "net"])
@pytest.mark.parametrize("target", list(_KINDS))
def test_several_optimizers(scope, target, saved_several):
  """Checks that each optimizer gets its own powers, or there is an error."""
  with helpers.control_flow(target == "v2"), tf.Graph().as_default():
    build_several(target, scope)
    variables = tf1.global_variables()
    clear = [v.assign(tf.ones_like(v) * 7) for v in variables]
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      for source in _KINDS:
        session.run(clear)
        path = saved_several[source, scope]
        if (source == "v2") != (target == "v2"):
          # Names do not show which of the scopes' optimizers was made first.
          with pytest.raises(
            checkpoint.CheckpointError, match=r"mapping=.*'beta1_power|/beta1"
          ):
            checkpoint.restore(session, path, same_order=target == "v2")
          values = session.run(variables)
          assert all(np.all(value == 7) for value in values)
          continue
        report = checkpoint.restore(session, path)
        values = session.run({v.op.name: v for v in variables})
        check_several(source, target, values, report)


@pytest.mark.parametrize("target", [False, True])
def test_several_optimizers_in_one_scope(target, tmp_path):
  def build():
    for i in range(3):
      w = tf1.get_variable(f"w{i}", [2], use_resource=True)
      opt = tf1.train.AdamOptimizer(0.1, beta1=0.5 + i / 100)
      opt = tfl.MixedPrecisionLossScaleOptimizer(opt, dynamic(2.0 ** (i + 3)))
      opt.minimize(tf.reduce_sum(w), var_list=[w])

  with helpers.control_flow(not target):
    path = save(tmp_path, build)
  with helpers.control_flow(target), tf.Graph().as_default():
    build()
    with tf1.Session() as session:
      with pytest.raises(checkpoint.CheckpointError, match="same_order=True"):
        checkpoint.restore(session, path)
      checkpoint.restore(session, path, same_order=True)
      got = session.run(
        [v for v in tf1.global_variables() if "beta1_power" in v.op.name]
      )
      scales = session.run(
        [v for v in tf1.global_variables() if "loss_scale" in v.op.name]
      )
  np.testing.assert_allclose(got, [0.5, 0.51, 0.52], rtol=1e-6)
  assert scales == [8, 16, 32]


def test_a_part_of_several_is_not_guessed(tmp_path):
  """Checks the error if fewer optimizers are restored than were saved."""
  with helpers.control_flow(False):
    path = save(tmp_path, lambda: adam_on(["a", "b"]))
  with helpers.control_flow(True), tf.Graph().as_default():
    with tf1.variable_scope("c"):
      adam_on(["a"])
    error = pytest.raises(checkpoint.CheckpointError, match="beta1_power")
    with tf1.Session() as session, error:
      checkpoint.restore(session, path)


@pytest.mark.any_release
def test_optimizers_in_another_order(tmp_path):
  """Checks that equal names of other optimizers show in the powers' values."""

  def build(betas):
    w = variable("w", [1.0, 2.0])
    for beta in betas:
      tf1.train.AdamOptimizer(0.1, beta1=beta).minimize(w * w, var_list=[w])

  betas = (0.5, 0.9)
  path = save(tmp_path, lambda: build(betas))
  with tf.Graph().as_default(), tf1.Session() as session:
    build(betas)
    checkpoint.restore(session, path)
  with tf.Graph().as_default(), tf1.Session() as session:
    build(betas[::-1])
    session.run([v.initializer for v in tf1.global_variables()])
    before = session.run(tf1.global_variables())
    for saver in (checkpoint.restore, checkpoint.Saver().restore):
      with pytest.raises(
        checkpoint.CheckpointError,
        match=r"are another optimizer's.*mapping=\{'beta1_power'",
      ):
        saver(session, path)
    after = session.run(tf1.global_variables())
    assert all(np.array_equal(*pair) for pair in zip(before, after))
    # The caller may know better: the program has other betas now.
    mapping = {n: n for n in ("beta1_power", "beta1_power_1")}
    checkpoint.restore(session, path, mapping=mapping)


if __name__ == "__main__":
  helpers.main()
