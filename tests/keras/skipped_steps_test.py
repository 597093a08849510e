# SPDX-License-Identifier: Apache-2.0
"""Tests that restored state decides if skipped steps count in `iterations`."""

import os

import helpers
from keras_trainers import save
import numpy as np
import processes
import pytest
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
k2 = _keras2.keras
own = k2.mixed_precision
# Release -> the iterations in its checkpoint, and whether the release counted
# skipped steps.
_RELEASES = {
  "tf-1.15.5": (10, False),
  "tf-2.0.4": (10, False),
  "tf-2.3.4": (12, True),
  "tf-2.4.4": (12, True),
  "tf-2.8.4": (12, True),
}
_OLD, _NEW = "tf-2.0.4", "tf-2.4.4"
_MARK = "skipped_steps_are_not_counted"


def path_of(release):
  return str(
    helpers.GOLDENS / release / "keras_dynamic_adam" / "object" / "ckpt-1"
  )


class Run:
  """The goldens' model and optimizer, with methods to step and to restore."""

  def __init__(self, cls=keras.LossScaleOptimizer, traced=False):
    scale = {} if cls is own.LossScaleOptimizer else {"loss_scale": "dynamic"}
    self.model = k2.Sequential(
      [k2.layers.InputLayer((4,)), k2.layers.Dense(3, name="dense")]
    )
    self.optimizer = cls(k2.optimizers.legacy.Adam(0.5), **scale)
    self.checkpoint = tf.train.Checkpoint(
      model=self.model, optimizer=self.optimizer
    )
    self.step = self._step
    if traced:  # AutoGraph would take seconds to convert the package's code.
      self.step = tf.function(self._step, autograph=False)

  def _step(self, factor):
    variables = self.model.trainable_variables
    grads = [tf.zeros_like(variable) + factor for variable in variables]
    self.optimizer.apply_gradients(zip(grads, variables))

  def skips(self):
    """Skips a step; returns the number that it adds to `iterations`."""
    before = self.optimizer.iterations.numpy()
    values = [variable.numpy() for variable in self.model.variables]
    self.step(tf.constant(np.inf))
    for variable, value in zip(self.model.variables, values):
      np.testing.assert_array_equal(variable.numpy(), value)
    return self.optimizer.iterations.numpy() - before

  def restore(self, path):
    self.optimizer.iterations  # noqa: B018
    self.optimizer._create_all_weights(self.model.trainable_variables)
    self.checkpoint.restore(path).assert_existing_objects_matched()
    return self


@pytest.mark.parametrize(
  ("release", "traced"),
  [*((release, False) for release in _RELEASES), (_OLD, True), (_NEW, True)],
)
def test_every_release(release, traced):
  iterations, counts = _RELEASES[release]
  run = Run(traced=traced)
  assert run.skips() == 1
  run.step(tf.constant(0.0))
  run.checkpoint.restore(path_of(release)).assert_consumed()
  assert int(run.optimizer.iterations) == iterations
  assert run.skips() == counts
  run.step(tf.constant(1.0))
  assert int(run.optimizer.iterations) == iterations + counts + 1


def test_it_is_saved_with_the_state(tmp_path):
  path = path_of(_OLD)
  for i in range(2):
    run = Run().restore(path)
    assert run.skips() == 0
    path = run.checkpoint.write(str(tmp_path / f"again-{i}"))
  run = Run(traced=True)
  assert run.skips() == 1
  run.checkpoint.restore(path).assert_consumed()
  assert run.skips() == 0
  # Only a state that does not count skipped steps is marked.
  path = run.restore(path_of(_NEW)).checkpoint.write(str(tmp_path / "new"))
  assert Run().restore(path).skips() == 1
  graph = tf.train.load_checkpoint(path).get_tensor(
    "_CHECKPOINTABLE_OBJECT_GRAPH"
  )
  assert _MARK.encode() not in graph


def test_keras_own_class_reads_it_and_counts(tmp_path):
  ours = Run().restore(path_of(_OLD))
  path = ours.checkpoint.write(str(tmp_path / "ours"))
  theirs = Run(own.LossScaleOptimizer)
  theirs.step(0.0)
  theirs.checkpoint.restore(path).assert_consumed()
  assert int(theirs.optimizer.iterations) == 10
  assert float(ours.optimizer.loss_scale) == float(theirs.optimizer.loss_scale)
  assert theirs.skips() == 1
  other = theirs.checkpoint.write(str(tmp_path / "theirs"))
  assert tf.train.list_variables(path) == tf.train.list_variables(other)
  assert ours.restore(other).skips() == 1


def test_a_restore_before_there_are_objects_and_by_another_path():
  waiting = tf.train.Checkpoint()
  waiting.restore(path_of(_OLD))
  run = Run()
  waiting.model, waiting.optimizer = run.model, run.optimizer
  assert int(run.optimizer.iterations) == 10
  assert run.skips() == 0
  run = Run()
  root = tf.train.Checkpoint(  # It reaches `iterations` before the optimizer.
    a_step=run.optimizer.iterations, model=run.model, optimizer=run.optimizer
  )
  root.restore(path_of(_OLD)).expect_partial()
  assert run.skips() == 0


def test_our_own_restore(tmp_path):
  run = Run()
  run.step(tf.constant(0.0))  # It makes the slots.
  objects = {"model": run.model, "optimizer": run.optimizer}
  checkpoint.restore(None, path_of(_OLD), objects)
  assert run.skips() == 0
  again = run.checkpoint.write(str(tmp_path / "again"))
  checkpoint.restore(None, path_of(_NEW), objects)
  assert run.skips() == 1
  checkpoint.restore(None, again, objects)
  assert run.skips() == 0
  for path in (path_of(_OLD), again, path_of(_NEW)):
    report = checkpoint.restore(None, path, objects)
    assert not report.kept and not report.initialized, report
    assert sum("/m" in key for key in (*report.restored, *report.bridged)) >= 2


@pytest.mark.parametrize("release", [_OLD, _NEW])
def test_saved_models_have_it(release, tmp_path):
  path = str(tmp_path / "saved")
  run = Run().restore(path_of(release))
  run.model.compile(run.optimizer, "mse")
  save(run.model, path)
  for i in range(2):
    if i:  # A loaded model can be saved again.
      save(run.model, path)
    run.model = keras.load_model(path)
    run.optimizer = run.model.optimizer
    assert int(run.optimizer.iterations) == _RELEASES[release][0] + i * (
      release == _NEW
    )
    assert run.skips() == _RELEASES[release][1]


def test_replicas():
  strategy = helpers.two_replicas()
  with strategy.scope():
    run = Run()

  @tf.function(autograph=False)
  def step(factor):
    strategy.run(run._step, args=(factor,))

  run.step = step
  assert run.skips() == 1
  run.restore(path_of(_OLD))
  assert run.skips() == 0
  run.restore(path_of(_NEW))
  assert run.skips() == 1


def sessions():
  """Checks that a graph built before a restore counts as the state says."""
  tf1.disable_eager_execution()
  if not os.environ["V2"]:
    tf1.disable_control_flow_v2()
  with tf.Graph().as_default(), tf1.Session() as session:
    run = Run()
    factor = tf1.placeholder(tf.float32, [])
    variables = run.model.trainable_variables
    grads = [tf.zeros_like(variable) + factor for variable in variables]
    op = run.optimizer.apply_gradients(zip(grads, variables))
    names = {v.op.name for v in tf1.global_variables()}
    assert not any("increment" in name for name in names), names
    session.run(tf1.global_variables_initializer())

    def skips():
      before = session.run(run.optimizer.iterations)
      session.run(op, {factor: np.inf})
      return session.run(run.optimizer.iterations) - before

    assert skips() == 1

    def restore(path):
      # A used Checkpoint would reuse its restore ops, which read one layout.
      objects = tf.train.Checkpoint(model=run.model, optimizer=run.optimizer)
      status = objects.restore(path)
      status.assert_consumed().run_restore_ops(session)
      return objects

    for release in (_OLD, _NEW, "tf-1.15.5", _NEW, _OLD):
      objects = restore(path_of(release))
      assert session.run(run.optimizer.iterations) == _RELEASES[release][0]
      assert skips() == _RELEASES[release][1], release
    saved = objects.write(os.path.join(os.environ["FOLDER"], "saved"))
    restore(path_of(_NEW))
    assert skips() == 1
    restore(saved)
    assert skips() == 0


@pytest.mark.parametrize("v2", ["", "1"])
def test_sessions(v2, tmp_path):
  folder = str(tmp_path)
  processes.run_alone(sessions, FOLDER=folder, V2=v2, **helpers.KERAS_2)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("scope", ["", "train"])
def test_names_of_a_graph_are_keras_own(v2, scope):
  """Checks that name-based checkpoints of Keras programs stay the same."""

  def names(cls, *args):
    with tf.Graph().as_default(), tf1.name_scope(scope or None):
      opt = cls(k2.optimizers.legacy.Adam(), *args)
      w = tf1.get_variable("w", [2], use_resource=True)
      opt.apply_gradients([(tf1.placeholder(tf.float32, [2]), w)])
      return [v.op.name for v in tf1.global_variables()]

  with helpers.control_flow(v2):
    ours = names(keras.LossScaleOptimizer, "dynamic")
    assert ours == names(own.LossScaleOptimizer)
  assert any("cond_1/Adam/w/m" in name for name in ours) != v2
