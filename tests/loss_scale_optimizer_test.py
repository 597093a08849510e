# SPDX-License-Identifier: Apache-2.0
"""Tests MixedPrecisionLossScaleOptimizer in every mode."""

import math

import helpers
from helpers import GRAPH_MODES
from helpers import MODES
from helpers import OWN
from helpers import Spec
from helpers import Trainer
import numpy as np
import pytest
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


@pytest.mark.parametrize(
  ("mode", "use_resource"),
  # Eager variables are resource variables, whatever `use_resource` is.
  [*((mode, True) for mode in MODES), ("graph_v1", False), ("graph_v2", False)],
)
def test_a_whole_schedule(mode, use_resource):
  make = wrap(dynamic(), lambda: tf1.train.MomentumOptimizer(0.5, 0.5))
  with Trainer(mode, make, use_resource=use_resource) as trainer:
    trainer.step(1.0)
    trainer.step(1.0)
    good = trainer.state()
    assert trainer.loss_scale == 16
    for bad in (math.inf, math.nan, [1.0, -math.inf]):
      trainer.step(bad)
      changed = {
        name
        for name, value in trainer.state().items()
        if value.tobytes() != good[name].tobytes()
      }
      assert changed == {"current_loss_scale"}
    assert (trainer.loss_scale, trainer.good_steps) == (2, 0)
    trainer.step(1.0)
    state = trainer.state()
    # Velocities 1, 1.5 and 1.75, each applied at a rate of 0.5.
    assert state["v0"].tolist() == [1 - 0.5 * 4.25] * 2
    assert state["v0/momentum"].tolist() == [1.75] * 2
    assert state["global_step"] == 3


@pytest.mark.parametrize("mode", MODES)
def test_fixed_scale_applies_whatever_comes(mode):
  with Trainer(mode, wrap(128.0)) as trainer:
    trainer.step([2.0, 4.0])
    assert trainer.state()["v0"].tolist() == [0, -1]
    trainer.step([math.inf, 0.0])
    assert trainer.state()["v0"][0] == -math.inf
    assert trainer.state()["global_step"] == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_variables_of_every_dtype(mode, dtype):
  specs = (Spec(dtype=dtype), Spec((3, 2), dtype, "sparse"), Spec((2,), dtype))
  with Trainer(mode, wrap(dynamic(2.0**14)), specs) as trainer:
    trainer.step(0.0, 0.0, 0.0)
    trainer.step(2.0**-12, 2.0**-14, 0.0)
    state = trainer.state()
    assert state["v0"].tolist() == [np.dtype(dtype).type(1 - 2**-13)] * 2
    assert state["v0"].dtype == dtype
    # The sparse gradient has row 0 twice.
    assert (
      state["v1"][0].tolist()
      == [np.dtype(dtype).type(np.dtype(dtype).type(1 - 2**-15) - 2**-15)] * 2
    )
    assert state["v1"][1:].tolist() == [[1, 1]] * 2
    assert trainer.loss_scale == 2.0**15
    trainer.step(math.nan, 0.0, 0.0)
    assert trainer.loss_scale == 2.0**14


def test_tensorflows_own_fails_on_ref_variables_with_v2_control_flow():
  def make():
    return OWN.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), OWN.DynamicLossScale()
    )

  with pytest.raises(TypeError):
    Trainer("graph_v2", make, use_resource=False)
  with Trainer("graph_v2", wrap("dynamic"), use_resource=False) as trainer:
    trainer.step(1.0)
    assert trainer.state()["v0"].tolist() == [0.5, 0.5]
    assert tf1.control_flow_v2_enabled()


def test_a_ref_global_step_with_resource_variables():
  with helpers.mode_scope("graph_v2"), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    step = tf1.get_variable("step", initializer=0, use_resource=False)
    train_op = wrap("dynamic")().minimize(v * 1.0, global_step=step)
    session.run(tf1.global_variables_initializer())
    session.run(train_op)
    assert session.run([v, step]) == [0.5, 1]


@pytest.mark.parametrize("mode", MODES)
def test_none_gradients_pass(mode):
  specs = (Spec(), Spec(kind="none"), Spec((0, 3)))
  with Trainer(mode, wrap(dynamic()), specs) as trainer:
    trainer.step(2.0, 0.0, 0.0)
    assert trainer.state()["v0"].tolist() == [0, 0]
    assert trainer.state()["v1"].tolist() == [1, 1]
    assert trainer.good_steps == 1


@pytest.mark.parametrize("mode", MODES)
def test_no_gradient_at_all_is_an_error(mode):
  specs = (Spec(kind="none"),)
  with (
    pytest.raises(ValueError, match="No gradients provided"),
    Trainer(mode, wrap(dynamic()), specs, apply_only=True) as trainer,
  ):
    trainer.step(0.0)


# Reads of the scale --------------------------------------------------------


@pytest.mark.parametrize(("module", "times"), [(tfl, 1), (OWN, 2)])
def test_the_scale_is_read_once_a_step(module, times):
  with tf.Graph().as_default() as graph:
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    opt = module.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), module.DynamicLossScale()
    )
    before = len(graph.get_operations())
    opt.compute_gradients(v * 2.0)
    reads = [
      op
      for op in graph.get_operations()[before:]
      if op.type == "ReadVariableOp"
      and op.inputs[0].op.name == "current_loss_scale"
    ]
    assert len(reads) == times


def test_a_scale_that_changes_between_reads_does_no_harm():
  class Restless(tfl.LossScale):
    """A loss scale that doubles at each read, as if by another worker."""

    reads = 0

    def __call__(self):
      self.reads += 1
      return tf.constant(2.0**self.reads)

    def update(self, grads):
      return None, True

    def get_config(self):
      return {}

  loss_scale = Restless()
  with Trainer("eager", wrap(lambda: loss_scale)) as trainer:
    trainer.step(1.0)
    trainer.step(1.0)
    assert trainer.state()["v0"].tolist() == [0, 0]
    assert loss_scale.reads == 2


# Loss scales of users ------------------------------------------------------


class Own(tfl.LossScale):
  """A loss scale whose `update` returns a given answer and counts calls."""

  def __init__(self, answer):
    super().__init__()
    self.answer = answer
    self._add_weight("updates", 0, tf.int64)

  def __call__(self):
    return 4.0  # A user's loss scale need not return a tensor.

  def update(self, grads):
    op = self._get_weight("updates").assign_add(1)
    answer = self.answer() if callable(self.answer) else self.answer
    return None if tf.executing_eagerly() else op, answer

  def get_config(self):
    return {"answer": self.answer}


@pytest.mark.parametrize(
  ("mode", "applies", "kind"),
  helpers.pairs(
    MODES,
    [True, False],
    [bool, np.bool_, lambda b: lambda: tf.constant(b) & True],
  ),
)
def test_update_of_a_users_own_loss_scale_is_called(mode, applies, kind):
  with Trainer(mode, wrap(lambda: Own(kind(applies)))) as trainer:
    trainer.step(1.0)
    trainer.step(1.0)
    state = trainer.state()
    assert state["updates"] == 2
    assert state["v0"].tolist() == ([0, 0] if applies else [1, 1])
    assert state["global_step"] == (2 if applies else 0)


@pytest.mark.parametrize("answer", [True, False, np.bool_(True)])
def test_a_python_bool_builds_no_cond(answer):
  with Trainer("graph_v1", wrap(lambda: Own(answer))) as trainer:
    types = {op.type for op in trainer.graph.get_operations()}
    assert not types & {"Switch", "Merge", "If", "StatelessIf"}


def test_update_of_a_fixed_subclass_is_called():
  class Watched(tfl.FixedLossScale):
    updates = 0

    def update(self, grads):
      self.updates += 1
      return super().update(grads)

  loss_scale = Watched(4)
  with Trainer("graph_v1", wrap(lambda: loss_scale)) as trainer:
    trainer.step(1.0)
    assert trainer.state()["v0"].tolist() == [0.5, 0.5]
  assert loss_scale.updates == 1


# Errors --------------------------------------------------------------------


def test_no_loss_scale():
  inner = tf1.train.GradientDescentOptimizer(0.5)
  with pytest.raises(ValueError, match="loss_scale cannot be None"):
    tfl.MixedPrecisionLossScaleOptimizer(inner, None)
  with pytest.raises(ValueError, match="'sometimes'"):
    tfl.MixedPrecisionLossScaleOptimizer(inner, "sometimes")


def test_eager_needs_a_function_for_the_loss():
  v = tf.Variable(1.0)
  with pytest.raises(RuntimeError, match="function"):
    wrap("dynamic")().minimize(v * 1.0, var_list=[v])


@pytest.mark.parametrize(
  ("mode", "sparse", "dtype"),
  helpers.pairs(
    MODES, [False, True], [tf.int32, tf.int64, tf.bool, tf.complex64]
  ),
)
def test_gradients_of_other_dtypes_are_an_error_at_once(mode, sparse, dtype):
  with helpers.mode_scope(mode):
    v = tf1.Variable([1.0, 2.0], name="v", use_resource=True)
    opt = wrap("dynamic")()

    def apply():
      grad = tf.cast([1, 0], dtype)
      if sparse:
        grad = tf.IndexedSlices(grad, tf.constant([0, 1]))
      with pytest.raises(TypeError, match=f"gradient of v:0 .* {dtype.name}"):
        opt.apply_gradients([(grad, v)])

    (tf.function(apply, autograph=False) if mode == "function" else apply)()
    assert mode != "eager" or v.numpy().tolist() == [1, 2]


# TensorFlow's check of numerics ---------------------------------------------


def _train_with_checked_numerics():
  tf.debugging.enable_check_numerics()
  largest = float(np.finfo(np.float32).max)
  for mode, shape, scale in helpers.pairs(
    MODES, [(2,), (200, 100)], [8.0, largest]
  ):
    make = wrap(dynamic(scale, 1))
    with Trainer(mode, make, (Spec(shape),), apply_only=True) as trainer:
      for _ in range(2):
        trainer.step(1.5e38)  # The sum of the gradient overflows float32.
      assert trainer.loss_scale == min(4 * scale, largest)
      assert (trainer.state()["v0"] == 1 - np.float32(1.5e38)).all()


def test_numerics_may_be_checked():
  helpers.run_alone(_train_with_checked_numerics)


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_scale_is_public(mode):
  with helpers.mode_scope(mode):
    loss_scale = tfl.DynamicLossScale(8, 2)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.1), loss_scale
    )
    assert opt.loss_scale is loss_scale
    opt.loss_scale = "mine"  # As a program's subclass may do.
    assert opt.loss_scale == "mine"
    assert opt._loss_scale is loss_scale


@pytest.mark.parametrize("mode", MODES)
def test_the_state_is_read_by_each_replica(mode):
  strategy = helpers.two_replicas()
  with helpers.mode_scope(mode), strategy.scope():
    v = tf.Variable(1.0)
    opt = wrap(dynamic(8, 5))()

    def step():
      train = opt.apply_gradients([(tf.constant(1.0), v)])
      with tf.control_dependencies([] if train is None else [train]):
        return tf.identity(opt.loss_scale.good_steps)

    def run():
      return strategy.experimental_local_results(strategy.run(step))

    if mode in helpers.GRAPH_MODES:
      seen = run()
      with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        assert session.run(seen) == (1, 1)
    else:
      run = tf.function(run, autograph=False) if mode == "function" else run
      assert [int(x) for x in run()] == [1, 1]


if __name__ == "__main__":
  helpers.main()


_LARGE = {
  "dynamic": lambda e: wrap(dynamic(2.0**e, 1)),
  "fixed": lambda e: wrap(2.0**e),
  "GrowthBackoff": lambda e: wrap(
    lambda: tfl.policies.GrowthBackoff(2.0**e, growth_interval=1)
  ),
  "contrib": lambda e: lambda: tfl.contrib.LossScaleOptimizer(
    tf1.train.GradientDescentOptimizer(0.5),
    tfl.contrib.ExponentialUpdateLossScaleManager(2.0**e, 1),
  ),
  "accumulate": lambda e: lambda: tfl.accumulate(
    wrap(dynamic(2.0**e, 1))(), steps=2, mean=False
  ),
}


@pytest.mark.parametrize("exponent", [118, 125, 126, 127])
@pytest.mark.parametrize("kind", _LARGE)
@pytest.mark.parametrize("mode", [*MODES, "xla"])
def test_a_large_scale_does_not_stop_training(mode, kind, exponent):
  # TensorFlow's own trains nothing here: with 2**127 the reciprocal is 0, and
  # with 2**118 a graph optimizer multiplies it by the small gradient first.
  rate = 2.0**-10  # The gradient of each weight.
  with helpers.mode_scope(mode):
    weights = tf1.Variable([1.0, 1.0, 1.0], use_resource=True)
    opt = _LARGE[kind](exponent)()

    def step():
      def loss():  # A constant factor is what graph optimizers move.
        return tf.reduce_sum(weights * rate)

      return opt.minimize(loss if mode == "eager" else loss(), None, [weights])

    def call():
      step()

    if mode in GRAPH_MODES:
      op = step()
      with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        for _ in range(4):
          session.run(op)
        trained = session.run(weights)
    else:
      run = {
        "eager": call,
        "function": tf.function(call, autograph=False),
        "xla": tf.function(call, autograph=False, jit_compile=True),
      }[mode]
      for _ in range(4):
        run()
      trained = weights.numpy()
  assert trained.tolist() == [1 - 4 * 0.5 * rate] * 3


class _Switched(tfl.FixedLossScale):
  """A loss scale whose answer is a variable of the program."""

  def __init__(self):
    super().__init__(8)
    with tf.init_scope():
      self.answer = tf1.Variable(True, trainable=False, use_resource=True)

  def update(self, grads):
    del grads
    return None, self.answer


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_may_be_a_variable(mode):
  with Trainer(mode, wrap(_Switched)) as trainer:
    trainer.step(1.0)
    assert trainer.state()["v0"].tolist() == [0.5, 0.5]
