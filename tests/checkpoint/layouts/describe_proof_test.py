# SPDX-License-Identifier: Apache-2.0
"""Tests that a description says no more than the checkpoint proves."""

import contextlib
import os

import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.cli import printing

tf1 = tf.compat.v1


def save(folder, build, v2=False, meta=True):
  """Saves what `build` creates; returns the path."""
  with helpers.control_flow(v2), tf.Graph().as_default():
    build()
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      return tf1.train.Saver().save(
        session, str(folder / "model"), write_meta_graph=meta
      )


def minimize(guard=None, scope=None, finite=False):
  """Trains `w` by Adam, perhaps in a cond or loop of the program's own."""
  w = tf1.get_variable("w", [2], use_resource=True)
  opt = tf1.train.AdamOptimizer(0.1)
  with tf1.name_scope(scope) if scope else contextlib.nullcontext():
    pairs = opt.compute_gradients(tf.reduce_sum(w * w), [w])
    if finite:
      pairs = [(g * tf.math.reciprocal(8.0), v) for g, v in pairs]
      checks = [tf.reduce_all(tf.math.is_finite(g)) for g, _ in pairs]
      predicate = tf.reduce_all(checks)
    else:
      predicate = tf1.placeholder_with_default(True, [])

    def apply():
      return opt.apply_gradients(pairs)

    if guard == "cond":
      tf1.cond(predicate, apply, tf.no_op)
    elif guard == "second cond":
      tf1.cond(predicate, tf.no_op, tf.no_op)
      tf1.cond(predicate, apply, tf.no_op)
    elif guard == "while":

      def body(i):
        with tf.control_dependencies([apply()]):
          return i + 1

      tf1.while_loop(lambda i: i < 1, body, [0])
    else:
      apply()


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("guard", ["cond", "second cond", "while"])
def test_an_optimizer_in_a_cond_of_the_programs_own(
  guard, finite, v2, meta, tmp_path
):
  path = save(tmp_path, lambda: minimize(guard, None, finite), v2, meta)
  d = checkpoint.describe(path)
  assert d.api is None and not d.loss_scales and d.inner_optimizer == "Adam"
  if not meta:
    assert d.control_flow is None
  elif guard != "while":
    assert d.control_flow == ("v2" if v2 else "v1")


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("scope", ["cond", "cond_1", "a/cond_3"])
def test_scopes_called_like_conds(scope, meta, tmp_path):
  d = checkpoint.describe(
    save(tmp_path, lambda: minimize(scope=scope), meta=meta)
  )
  assert (d.api, d.control_flow, d.loss_scales) == (None, None, ())


def test_the_graph_of_another_checkpoint_tells_nothing(tmp_path):
  path = save(tmp_path, lambda: minimize("cond"))
  os.utime(f"{path}.meta", (0, 0))
  d = checkpoint.describe(path)
  assert (d.release, d.control_flow) == (None, None)


def users(*names, dtype="int64"):
  for name in names:
    is_scale = name.endswith("loss_scale")
    tf1.get_variable(
      name, [], tf.float32 if is_scale else dtype, tf1.zeros_initializer()
    )


@pytest.mark.parametrize(
  "names",
  [
    ["current_loss_scale", "good_steps"],
    ["current_loss_scale"],
    ["good_steps"],
    ["loss_scale"],
  ],
)
def test_users_variables(names, tmp_path):
  """Checks variables on which, by the graph, no weight depends."""
  path = save(tmp_path, lambda: (users(*names), minimize()))
  d = checkpoint.describe(path)
  assert (d.api, d.loss_scales) == (None, ())


@pytest.mark.parametrize("names", [["good_steps"], ["loss_scale"], ["power"]])
def test_common_names_are_no_loss_scale(names, tmp_path):
  path = save(tmp_path, lambda: (users(*names), minimize()), meta=False)
  d = checkpoint.describe(path)
  assert (d.api, d.loss_scales) == (None, ())


@pytest.mark.parametrize("meta", [False, True])
def test_an_incomplete_loss_scale(meta, tmp_path):
  def build():
    w = tf1.get_variable("w", [2], use_resource=True)
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8.0)
    ).minimize(w * w, var_list=[w])

  with helpers.control_flow(False), tf.Graph().as_default():
    build()
    kept = [v for v in tf1.global_variables() if v.op.name != "good_steps"]
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      path = tf1.train.Saver(kept).save(
        session, str(tmp_path / "model"), write_meta_graph=meta
      )
  d = checkpoint.describe(path)
  (state,) = d.loss_scales
  assert (state.value, state.good_steps) == (8.0, None)
  assert state.names == ("current_loss_scale",)
  assert d.api == ("compat.v1" if meta else None)
  rows = dict(printing._make_rows(d))
  assert "counter of good steps is missing" in rows["loss scale"]
  assert "no state" not in rows["written by"]


def test_loss_scales_of_both_apis(tmp_path):
  def build():
    w = tf1.get_variable("w", [2], use_resource=True)
    for wrap, scale in (
      (tfl.MixedPrecisionLossScaleOptimizer, tfl.DynamicLossScale(8.0)),
      (
        tfl.contrib.LossScaleOptimizer,
        tfl.contrib.ExponentialUpdateLossScaleManager(4.0, 3),
      ),
    ):
      opt = tf1.train.GradientDescentOptimizer(0.1)
      wrap(opt, scale).minimize(w * w, var_list=[w])

  assert checkpoint.describe(save(tmp_path, build)).api == "compat.v1, contrib"


@pytest.mark.parametrize("children", ["variables", "optimizer"])
def test_users_objects(children, tmp_path):
  """Checks objects of the user's with the names of TensorFlow's objects."""
  root = tf.Module()
  if children == "variables":
    root.loss_scale = tf.Variable(2.0)
    root.iter = tf.Variable(1)
    root.second = tf.Module()
    root.second.beta1_power = tf.Variable(0.5)
  else:
    root.opt = tf.Module()
    root.opt.base_optimizer = tf.Module()
    root.opt.base_optimizer.w = tf.Variable(1.0)
  d = checkpoint.describe(
    tf.train.Checkpoint(root=root).write(str(tmp_path / "model"))
  )
  assert (d.api, d.loss_scales, d.control_flow) == (None, (), None)
  assert d.inner_optimizer is None


if __name__ == "__main__":
  helpers.main()
