# SPDX-License-Identifier: Apache-2.0
"""Tests MixedPrecisionLossScaleOptimizer in every mode."""

import contextlib
import copy
import itertools
import logging
import math
import pickle

import helpers
from helpers import GRAPH_MODES
from helpers import INNER
from helpers import MODES
from helpers import OWN
import numpy as np
import processes
import pytest
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf
import trainers
from trainers import Spec
from trainers import Trainer

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import keras
from tf_compat_lossscale import policies
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1


def test_a_ref_global_step_with_resource_variables():
  with helpers.mode_scope("graph_v2"), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    step = tf1.get_variable("step", initializer=0, use_resource=False)
    train_op = wrap("dynamic")().minimize(v * 1.0, global_step=step)
    session.run(tf1.global_variables_initializer())
    session.run(train_op)
    assert session.run([v, step]) == [0.5, 1]


@pytest.mark.parametrize("mode", MODES)
def test_no_gradient_at_all_is_an_error(mode):
  specs = (Spec(kind="none"),)
  with (
    pytest.raises(ValueError, match="No gradients provided"),
    Trainer(mode, wrap(dynamic()), specs, apply_only=True) as trainer,
  ):
    trainer.step(0.0)


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


class Restless(Own):
  """A loss scale that doubles at each read, as if by another worker."""

  reads = 0

  def __call__(self):
    self.reads += 1
    return tf.constant(2.0**self.reads)


def test_a_scale_that_changes_between_reads_does_no_harm():
  loss_scale = Restless(True)
  with Trainer("eager", wrap(loss_scale)) as trainer:
    trainer.step(1.0)
    trainer.step(1.0)
    assert trainer.variables[0].numpy().tolist() == [0, 0]
    assert loss_scale.reads == 2


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
    if mode == "eager":
      assert bool(trainer.opt.last_step_applied) == applies


# Errors --------------------------------------------------------------------


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
  processes.run_alone(_train_with_checked_numerics)


def test_the_loss_scale_is_public():
  loss_scale = tfl.DynamicLossScale(8, 2)
  opt = wrap(loss_scale)()
  assert opt.loss_scale is loss_scale
  opt.loss_scale = "mine"  # As a program's subclass may do.
  assert opt.loss_scale == "mine"
  assert opt._loss_scale is loss_scale


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_the_state_is_read_by_each_replica(kind):
  strategy = helpers.two_replicas()
  with strategy.scope():
    v, opt = tf.Variable(1.0), wrap(dynamic(8, 5))()

  def step():
    opt.apply_gradients([(tf.constant(1.0), v)])
    return tf.identity(opt.loss_scale.good_steps)

  def run():
    return strategy.experimental_local_results(strategy.run(step))

  run = tf.function(run, autograph=False) if kind == "function" else run
  assert [int(x) for x in run()] == [1, 1]


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


_RATE = 2.0**-10  # The gradient of each weight.


class Constant(Trainer):
  """A trainer whose gradients are a constant, which graph optimizers move."""

  def _build(self, fed):
    (v,) = self.variables
    loss = lambda: tf.reduce_sum(v * _RATE)  # noqa: E731
    step = self.opt.minimize(loss if self.graph is None else loss(), None, [v])
    return None if self.mode == "function" else step


@pytest.mark.parametrize(
  ("mode", "kind", "exponent"),
  helpers.pairs([*MODES, "xla"], _LARGE, [118, 125, 126, 127]),
)
def test_a_large_scale_does_not_stop_training(mode, kind, exponent):
  # TensorFlow's own trains nothing here: with 2**127 the reciprocal is 0, and
  # with 2**118 a graph optimizer multiplies it by the small gradient first.
  is_xla, mode = mode == "xla", "function" if mode == "xla" else mode
  with Constant(mode, _LARGE[kind](exponent), (Spec((3,)),)) as trainer:
    if is_xla:
      trainer._function = tf.function(
        trainer._run, autograph=False, jit_compile=True
      )
    for _ in range(4):
      trainer.step(0.0)
    trained = trainer.value(trainer.variables[0])
  assert trained.tolist() == [1 - 4 * 0.5 * _RATE] * 3


class _Switched(tfl.FixedLossScale):
  """A loss scale whose answer is a variable of the program."""

  def update(self, grads):
    del grads
    with tf.init_scope():
      answer = tf1.Variable(False, trainable=False, use_resource=True)
    return None, answer


@pytest.mark.parametrize("mode", ["graph_v2", "eager"])
def test_an_answer_may_be_a_variable(mode):
  with Trainer(mode, wrap(lambda: _Switched(8))) as trainer:
    trainer.step(1.0)
    assert trainer.state()["v0"].tolist() == [1.0] * 2


# Inner optimizers ----------------------------------------------------------


class Decayed(tf1.train.Optimizer):
  """An optimizer that calls `get_variable` to apply, as BERT's Adam does."""

  def __init__(self):
    super().__init__(False, "Decayed")

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    ops = []
    for grad, var in grads_and_vars:
      m = tf1.get_variable(
        var.op.name + "/decayed_m",
        shape=var.shape,
        trainable=False,
        initializer=tf1.zeros_initializer(),
      )
      new_m = 0.5 * m + grad
      ops += [m.assign(new_m), var.assign(var - 0.25 * new_m)]
    if global_step is not None:
      ops.append(tf1.assign_add(global_step, 1))
    return tf.group(*ops, name=name)


@pytest.mark.parametrize(
  ("mode", "use_resource", "in_cond"),
  # A v2 cond cannot capture reference variables.
  [
    row
    for row in itertools.product(helpers.GRAPH_MODES, *[[True, False]] * 2)
    if row != ("graph_v2", False, True)
  ],
)
def test_optimizers_that_make_variables_as_they_apply(
  mode, use_resource, in_cond
):
  with helpers.mode_scope(mode), tf1.Session() as session:
    with tf1.variable_scope("net", use_resource=use_resource):
      v = tf1.get_variable("v", initializer=[1.0])
    step = tf1.train.get_or_create_global_step()
    opt = wrap(dynamic(), Decayed)()
    fed = tf1.placeholder(tf.float32, [1])
    grads_and_vars = [(fed, v)]
    if in_cond:
      train = tf.cond(
        tf1.placeholder_with_default(True, []),
        lambda: opt.apply_gradients(grads_and_vars, step),
        tf.no_op,
      )
    else:
      train = opt.apply_gradients(grads_and_vars, step)
    session.run(tf1.global_variables_initializer())
    for grad in (1.0, math.nan, 1.0):
      session.run(train, {fed: [grad]})
    assert session.run([v, step, opt.loss_scale()]) == [[0.375], 2, 4]
    assert "net/v/decayed_m" in helpers.variable_names()


@pytest.mark.parametrize("mode", MODES)
def test_wrapped_twice(mode):
  inner = wrap(dynamic(4.0))
  with Trainer(mode, wrap(dynamic(16.0), inner)) as trainer:
    trainer.step(1.0)
    trainer.step(math.inf)
    assert trainer.state()["v0"].tolist() == [0.5, 0.5]


def test_it_speaks_for_the_inner_optimizer():
  make = wrap(dynamic(), lambda: tf1.train.AdamOptimizer(0.1, name="Eve"))
  with Trainer("graph_v1", make) as trainer:
    opt, (v,) = trainer.opt, trainer.variables
    inner = opt._optimizer
    assert opt.get_name() == inner.get_name() == "Eve"
    assert opt.get_slot_names() == ["m", "v"]
    assert opt.get_slot(v, "m") is inner.get_slot(v, "m")
    assert opt.get_slot(v, "m").op.name == "v0/Eve"
    assert opt.get_slot(v, "no such slot") is None
    names = [variable.op.name for variable in opt.variables()]
    assert names[-2:] == ["current_loss_scale", "good_steps"]
    assert sorted(names[:-2]) == [
      "cond_1/beta1_power",
      "cond_1/beta2_power",
      "v0/Eve",
      "v0/Eve_1",
    ]
    assert trainer.train_op.name == "Eve"
    assert isinstance(opt, tf1.train.Optimizer)
    assert "AdamOptimizer" in repr(opt) and "DynamicLossScale" in repr(opt)


def test_locking_is_the_inner_optimizers():
  inner = tf1.train.GradientDescentOptimizer(0.5, use_locking=True)
  assert tfl.MixedPrecisionLossScaleOptimizer(inner, 8)._use_locking


class _Returning(tf1.train.GradientDescentOptimizer):
  """An optimizer whose `apply_gradients` returns a tensor in every mode."""

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    done = super().apply_gradients(grads_and_vars, global_step)
    with tf.control_dependencies([] if done is None else [done]):
      return tf.constant(7.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss_scale", [8.0, "dynamic"])
def test_an_apply_that_returns_a_tensor(mode, loss_scale):
  with Trainer(mode, wrap(loss_scale, lambda: _Returning(0.5))) as trainer:
    trainer.step([2.0, 4.0])
    if loss_scale == "dynamic":
      trainer.step([math.nan, 1.0])
    assert trainer.state()["v0"].tolist() == [0, -1]


class _Averaged(tf1.train.Optimizer):
  """A wrapper that calls no constructor of the base class, so has no name."""

  def __init__(self, optimizer):
    self._optimizer = optimizer
    self._average = tf1.train.ExponentialMovingAverage(0.5)

  def compute_gradients(self, *args, **kwargs):
    return self._optimizer.compute_gradients(*args, **kwargs)

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    pairs = list(grads_and_vars)
    step = self._optimizer.apply_gradients(pairs, global_step, name)
    with tf.control_dependencies([step]):
      return self._average.apply([var for _, var in pairs])


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("api", ["compat.v1", "contrib"])
def test_a_wrapper_without_a_name(mode, api):
  inner = lambda: _Averaged(momentum())  # noqa: E731
  make = wrap("dynamic", inner) if api != "contrib" else lambda: manage(inner())
  with Trainer(mode, make, apply_only=True) as trainer:
    assert trainer.opt.get_name() == "Averaged"
    (v,) = trainer.variables
    average = trainer.opt._optimizer._average.average(v)
    for grad, expected in ((math.nan, [1.0, 1.0]), (2.0, [0.0, 0.5])):
      trainer.step(grad)
      assert [trainer.value(x)[0] for x in (v, average)] == expected


@pytest.mark.parametrize("loss_scale", [8.0, "dynamic"])
def test_an_inner_optimizer_may_change_its_list(loss_scale):
  class Sorting(tf1.train.GradientDescentOptimizer):
    def apply_gradients(self, grads_and_vars, *args, **kwargs):
      grads_and_vars.sort(key=lambda pair: pair[1].name)
      return super().apply_gradients(grads_and_vars, *args, **kwargs)

  variable = tf.Variable(1.0)
  opt = tfl.MixedPrecisionLossScaleOptimizer(Sorting(0.5), loss_scale)
  opt.minimize(lambda: variable * 1.0, var_list=[variable])
  assert variable.numpy() == 0.5


class _Equal(tfl.MixedPrecisionLossScaleOptimizer):
  """A program's class that defines equality and, so, no hash."""

  def __eq__(self, other):
    return isinstance(other, _Equal)


def test_optimizers_that_are_equal_keep_apart():
  with helpers.mode_scope("graph_v1"):
    v = tf1.get_variable("v", initializer=[1.0], use_resource=True)
    first, second = (_Equal(sgd(), "dynamic") for _ in range(2))
    for opt in (first, second):
      opt.apply_gradients([(tf1.placeholder(tf.float32, [1]), v)])
    assert first == second
    assert first.last_step_applied is not second.last_step_applied


# Attributes of the wrapped optimizer ---------------------------------------


k2 = _keras2.keras


_WRAPPERS = {
  "MixedPrecisionLossScaleOptimizer": lambda opt: wrap("dynamic", opt)(),
  "LossScaleOptimizer": lambda opt: manage(opt(), 2),
  "AccumulatingOptimizer": lambda opt: tfl.accumulate(wrap(8, opt)(), 1),
}


def sgd():
  return tf1.train.GradientDescentOptimizer(0.25)


def momentum():
  return tf1.train.MomentumOptimizer(0.5, 0.5)


def manage(inner, *args):
  """Returns tf.contrib's optimizer with an exponential manager."""
  args = args or (2,)
  manager = contrib.ExponentialUpdateLossScaleManager(8.0, *args)
  return contrib.LossScaleOptimizer(inner, manager)


@pytest.mark.any_release
@pytest.mark.parametrize("name", _WRAPPERS)
def test_attributes_of_the_wrapped_optimizer(name):
  inner = tf1.train.MomentumOptimizer(0.25, momentum=0.5)
  inner.loss_scale = "the inner optimizer's"
  wrapper = _WRAPPERS[name](lambda: inner)
  assert (wrapper._learning_rate, wrapper._momentum) == (0.25, 0.5)
  wrapper._learning_rate = 0.5
  assert inner._learning_rate == 0.5
  assert "_learning_rate" not in vars(wrapper)
  v = tf.Variable(1.0)
  wrapper.minimize(lambda: v * 1.0, var_list=[v])
  assert float(v) == 0.5
  assert getattr(wrapper, "momentum", "none") == "none"
  assert "get_slot_names" not in dir(wrapper)
  assert callable(wrapper.loss_scale)
  wrapper.note = 1
  assert wrapper.note == 1 and not hasattr(inner, "note")
  for attribute in ("lr", "_lr", "__private"):
    message = f"has no attribute '{attribute}'"
    with pytest.raises(AttributeError, match=message):
      getattr(wrapper, attribute)


@pytest.mark.any_release
def test_attributes_of_a_subclass():
  class Mine(tfl.MixedPrecisionLossScaleOptimizer):
    def __init__(self, rate):
      self._lr = rate
      super().__init__(tf1.train.AdamOptimizer(rate / 2), "dynamic")

    @property
    def rate(self):
      return self._optimizer.no_such

  optimizer = Mine(1.0)
  assert (optimizer._lr, optimizer._optimizer._lr) == (1.0, 0.5)
  optimizer._lr = 2.0
  optimizer._momentum = 0.5  # Adam has none.
  assert (optimizer._lr, optimizer._momentum) == (2.0, 0.5)
  assert optimizer._optimizer._lr == 0.5
  with pytest.raises(AttributeError, match=r"'AdamOptimizer' .* 'no_such'"):
    optimizer.rate  # noqa: B018


@pytest.mark.any_release
@pytest.mark.parametrize("kind", ["legacy", "new"])
def test_attributes_of_keras_optimizers(kind):
  home = k2.optimizers.legacy if kind == "legacy" else k2.optimizers
  inner = home.SGD(0.25, momentum=0.5, nesterov=True)
  wrapper = keras.LossScaleOptimizer(inner, "dynamic")
  k2.backend.set_value(wrapper.lr, 0.125)  # As LearningRateScheduler does.
  assert float(inner.learning_rate) == 0.125
  wrapper.lr = 0.5
  assert float(inner.learning_rate) == 0.5
  assert k2.backend.get_value(wrapper.momentum) == 0.5 and wrapper.nesterov
  with pytest.raises(AttributeError, match=r"'LossScaleOpt.*epsilon'"):
    wrapper.epsilon  # noqa: B018


@pytest.mark.any_release
def test_the_state_of_legacy_optimizers():
  rate = k2.optimizers.schedules.ExponentialDecay(0.5, 2, 0.25)
  inner = k2.optimizers.legacy.Adam(rate, epsilon=0.125)
  wrapper = keras.LossScaleOptimizer(inner, "dynamic")
  wrapper.iterations = tf.Variable(2, dtype=tf.int64)
  assert int(inner.iterations) == 2
  assert wrapper._hyper is inner._hyper
  assert float(wrapper._decayed_lr("float32")) == 0.125
  assert (wrapper.epsilon, wrapper.amsgrad) == (0.125, False)
  variable = tf.Variable(1.0)
  wrapper.minimize(lambda: variable * 1.0, [variable])
  assert wrapper.get_slot(variable, "m") is inner.get_slot(variable, "m")


# Copies and pickles --------------------------------------------------------


_INF = float("inf")


def of_keras(optimizers):
  return keras.LossScaleOptimizer(
    optimizers.SGD(0.5, 0.5), tfl.DynamicLossScale(8, 100)
  )


_MAKERS = {
  "compat.v1": wrap(dynamic(8, 100), momentum),
  "contrib": lambda: manage(momentum(), 100, 1, 2, 0.5),
  "accumulate": lambda: tfl.accumulate(wrap(dynamic(8, 100), momentum)(), 1),
  "keras_legacy": lambda: of_keras(_keras2.keras.optimizers.legacy),
  "keras_new": lambda: of_keras(_keras2.keras.optimizers),
}

_COPIES = {
  "copy": copy.copy,
  "deepcopy": copy.deepcopy,
  "pickle": lambda opt: pickle.loads(pickle.dumps(opt)),
}

# What Keras itself cannot do with its own loss-scale optimizers.
_REFUSED = {
  "keras_legacy": ("pickle",),
  "keras_new": ("deepcopy", "pickle"),
}


def step(opt, w, factor):
  """Does a step, and returns what it subtracts from a variable."""
  before = float(w)
  opt.minimize(lambda: w * factor, var_list=[w])
  return before - float(w)


def scale_of(opt):
  return float(opt.loss_scale() if callable(opt.loss_scale) else opt.loss_scale)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
  ("name", "way"),
  [
    (name, way)
    for name in _MAKERS
    for way in _COPIES
    if way not in _REFUSED.get(name, ())
  ],
)
def test_copies_train(name, way, used):
  opt, w = _MAKERS[name](), tf.Variable(1.0)
  if used:
    assert step(opt, w, 1.0) == 0.5
  twin = _COPIES[way](opt)
  assert type(twin) is type(opt)
  if used:
    assert bool(twin.last_step_applied)
  assert step(twin, w, _INF) == 0 and not twin.last_step_applied
  assert step(opt, w, 1.0) == (0.75 if used else 0.5) and opt.last_step_applied
  assert not twin.last_step_applied
  assert scale_of(twin) == 4
  assert scale_of(opt) == (4 if way == "copy" else 8)  # It shares its parts.


# last_step_applied ---------------------------------------------------------


_SCHEDULE = [1.0, _INF, _INF, 1.0, float("nan"), 1.0]


MAKERS = {
  "dynamic": wrap(dynamic(), lambda: tf1.train.AdamOptimizer(0.1)),
  "contrib": lambda: manage(sgd(), 2),
}

KINDS = ("eager", "function", "jit")


def make_step(opt, kind, variable=None):
  """Returns a function that does a step with a factor of the loss.

  The function returns `last_step_applied`, as it is read right after the step.
  """
  if variable is None:
    variable = tf.Variable([1.0, 2.0])

  def step(factor):
    opt.minimize(lambda: tf.reduce_sum(variable * factor), var_list=[variable])
    return opt.last_step_applied

  if kind != "eager":
    step = tf.function(step, jit_compile=kind == "jit", autograph=False)
  return lambda factor: step(tf.convert_to_tensor(factor))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MAKERS)
def test_read_after_each_step(name, kind):
  step = make_step(MAKERS[name](), kind)
  for factor in _SCHEDULE:
    value = step(factor)
    assert value.dtype == tf.bool and value.shape == []
    assert bool(value) == bool(np.isfinite(factor))


def test_eager_code_knows_eager_steps_alone():
  opt = MAKERS["dynamic"]()
  variable = tf.Variable([1.0, 2.0])
  eager, function, jit = [make_step(opt, kind, variable) for kind in KINDS]
  assert not function(_INF)
  with pytest.raises(RuntimeError, match="has taken no eager step"):
    _ = opt.last_step_applied
  assert eager(1.0) and not function(_INF) and opt.last_step_applied
  assert not eager(_INF) and jit(1.0) and not opt.last_step_applied


def test_each_trace_has_a_tensor_of_its_own():
  step = make_step(MAKERS["dynamic"](), "function")
  assert step(1.0) and not step([_INF]) and not step(_INF) and step([1.0])


@pytest.mark.parametrize("jit", [False, True])
def test_loop_in_a_function(jit):
  step = make_step(MAKERS["dynamic"](), "eager")

  @tf.function(jit_compile=jit)
  def train(factors):
    applied = True
    for i in tf.range(3):
      applied = step(factors[i])
    return applied

  assert not train(tf.constant([1.0, 1.0, _INF]))
  assert train(tf.constant([_INF, _INF, 1.0]))


def test_function_in_a_graph_of_tensorflow_1():
  with tf.Graph().as_default(), tf1.Session() as session:
    variable = tf1.get_variable("v", [2], use_resource=True)
    opt = MAKERS["dynamic"]()
    step = make_step(opt, "function", variable)
    good, bad = step(1.0), step(_INF)
    with pytest.raises(RuntimeError, match=r"this graph.* that a tf\.function"):
      _ = opt.last_step_applied
    session.run(tf1.global_variables_initializer())
    assert session.run(good)
    assert not session.run(bad)


@pytest.mark.parametrize("fixed", [False, True])
def test_replicas(fixed):
  make, strategy = wrap(8 if fixed else dynamic(8, 2)), helpers.two_replicas()
  with Trainer("eager", make, strategy=strategy) as trainer:
    for grad in (1.0, _INF, 1.0, _INF):
      trainer.step(grad)
      applied = trainer.opt.last_step_applied
      assert bool(applied) == (fixed or math.isfinite(grad))


# Bypassed scaling ----------------------------------------------------------


_SAID = "compute_gradients was not called, and nobody read the loss scale"


class _OwnManager:
  __slots__ = ()

  def get_loss_scale(self):
    return tf.constant(8.0)

  def update_loss_scale(self, finite_grads):
    return tf.no_op()


class _OwnScale(tfl.DynamicLossScale):
  def __call__(self):
    return tf.constant(8.0)


def _differentiate(v, factor=1.0):
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(v * v) * factor
  return tape.gradient(loss, v)


def _bypass(optimizer, v):
  del optimizer
  return _differentiate(v)


def _train(mode, make, compute, caplog):
  """Takes two steps with what `compute` returns for gradients of `v`."""
  with contextlib.ExitStack() as stack:
    if mode == "graph":
      stack.enter_context(tf.Graph().as_default())
    v = tf1.Variable([1.0, 2.0], use_resource=True)
    optimizer = make()

    def step():
      optimizer.apply_gradients([(compute(optimizer, v), v)])

    with caplog.at_level(logging.WARNING):
      for _ in range(2):
        if mode == "function":
          tf.function(step, autograph=False).get_concrete_function()
        else:
          step()


def _by_hand(optimizer, v):
  scale = optimizer.loss_scale()
  return _differentiate(v, scale) * (1 / scale)


def _by_its_variable(optimizer, v):
  scale = optimizer.loss_scale.current_loss_scale
  return _differentiate(v, scale) / scale


def _computed(optimizer, v):
  ((grad, _),) = optimizer.compute_gradients(lambda: tf.reduce_sum(v * v), [v])
  return tf.clip_by_norm(grad, 1.0)


_ROWS = {
  "dynamic": (wrap("dynamic"), _bypass, True),
  "policy": (wrap(policies.GrowthBackoff), _bypass, True),
  "manager": (lambda: manage(sgd(), 2), _bypass, True),
  "accumulate": (
    lambda: tfl.accumulate(wrap("dynamic")(), 2),
    _bypass,
    True,
  ),
  "by hand": (wrap("dynamic"), _by_hand, False),
  "by its variable": (wrap("dynamic"), _by_its_variable, False),
  "computed": (wrap("dynamic"), _computed, False),
  "zeros": (wrap("dynamic"), lambda _, v: tf.zeros_like(v), False),
  "fixed": (wrap(128), _bypass, False),
  "fixed manager": (
    lambda: contrib.LossScaleOptimizer(
      sgd(), contrib.FixedLossScaleManager(128)
    ),
    _bypass,
    False,
  ),
  "a user's manager": (
    lambda: contrib.LossScaleOptimizer(sgd(), _OwnManager()),
    _bypass,
    False,
  ),
}


@pytest.mark.parametrize("mode", ["graph", "function", "eager"])
@pytest.mark.parametrize("row", _ROWS)
def test_the_warning_of_gradients_that_nothing_scaled(mode, row, caplog):
  make, compute, warns = _ROWS[row]
  _train(mode, make, compute, caplog)
  assert caplog.text.count(_SAID) == warns
  if warns and row != "accumulate":
    assert "LossScaleOptimizer.apply" in caplog.text


def test_a_copy_and_a_manager_that_is_read(caplog):
  _train("eager", wrap(_OwnScale), _computed, caplog)
  optimizer = manage(sgd(), 2)
  optimizer.loss_scale_manager.get_loss_scale()
  _train("eager", lambda: optimizer, _bypass, caplog)
  optimizer = wrap("dynamic")()
  optimizer.loss_scale()
  _train("eager", lambda: copy.deepcopy(optimizer), _bypass, caplog)
  assert _SAID not in caplog.text


# SavedModels that train on -------------------------------------------------


WRAPPERS = {
  "dynamic": lambda inner: wrap(dynamic(), inner)(),
  "fixed": lambda inner: wrap(8, inner)(),
  "contrib": lambda inner: manage(inner(), 2),
  "policy": lambda inner: wrap(
    lambda: policies.GrowthBackoff(8.0, growth_interval=2), inner
  )(),
}


def make_module(wrapper, inner):
  """Returns a module with a variable, an optimizer and a training step."""
  module = tf.Module()
  module.v = tf.Variable([1.0, 2.0])
  module.opt = WRAPPERS[wrapper](INNER[inner])

  @tf.function(input_signature=[tf.TensorSpec([])], autograph=False)
  def step(factor):
    module.opt.minimize(
      lambda: tf.reduce_sum(module.v * module.v * factor), var_list=[module.v]
    )
    return module.opt.last_step_applied, module.opt.loss_scale()

  module.step = step
  return module


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_trains_on_bit_for_bit(wrapper, tmp_path):
  module = make_module(wrapper, "sgd")
  for factor in (0.1, 0.2, 0.3):
    module.step(tf.constant(factor))
  tf.saved_model.save(module, tmp_path)
  loaded = tf.saved_model.load(tmp_path)
  factors = [0.5, 0.1, 0.3]
  if wrapper != "fixed":  # A fixed loss scale applies an infinity.
    factors.insert(1, float("nan"))
  for factor in factors:
    expected = module.step(tf.constant(factor))
    found = loaded.step(tf.constant(factor))
    assert [x.numpy() for x in found] == [x.numpy() for x in expected]
    np.testing.assert_array_equal(loaded.v, module.v)


# Names and MetaGraphs -------------------------------------------------------


def build(module, inner, loss_scale, use_resource):
  v = tf1.get_variable("v", [2], use_resource=use_resource)
  step = tf1.train.get_or_create_global_step()
  if loss_scale == "dynamic":
    loss_scale = module.DynamicLossScale(8, 2)
  opt = module.MixedPrecisionLossScaleOptimizer(INNER[inner](), loss_scale)
  return opt.minimize(tf.reduce_sum(v * v), global_step=step, name="train")


@pytest.mark.parametrize(
  ("mode", "use_resource", "scope", "conds_before"),
  [
    row
    for row in itertools.product(
      GRAPH_MODES, [True, False], [None, "net"], [0, 2]
    )
    # TensorFlow's own fails on reference variables under v2 control flow.
    if row[:2] != ("graph_v2", False)
  ],
)
def test_variables_are_named_as_tensorflow_names_them(
  mode, use_resource, scope, conds_before
):
  """Checks what depends on the place; differential_test has the rest."""
  names = []
  for module in (OWN, tfl):
    with helpers.mode_scope(mode):
      for _ in range(conds_before):
        tf.cond(tf1.placeholder(tf.bool), lambda: 1.0, lambda: 2.0)
      with tf1.variable_scope(scope or tf1.get_variable_scope()):
        # Adam's variables are made inside a cond.
        train = build(module, "adam", "dynamic", use_resource)
      names.append((helpers.variable_names(), train.name))
  assert names[0] == names[1]


def test_a_name_that_users_fetch_by_stays_theirs():
  with tf.Graph().as_default() as graph:
    build(tfl, "adam", "dynamic", True)
    for name in ("loss_scale", "gradients_1", "all_finite", "unscale"):
      assert tf.constant(1.0, name=name).op.name == name
    assert graph.get_operation_by_name("train")


# MetaGraphs ----------------------------------------------------------------


@pytest.mark.parametrize(
  ("mode", "inner", "loss_scale", "use_resource"),
  helpers.pairs(
    GRAPH_MODES, ["sgd", "momentum", "adam"], ["dynamic", 8], [True, False]
  ),
)
def test_a_metagraph_trains_on(mode, inner, loss_scale, use_resource, tmp_path):
  path = str(tmp_path / "model")

  def train_on(session, train):
    session.run([train] * 3)
    session.run(train)
    variables = tf1.global_variables()
    return dict(zip([v.name for v in variables], session.run(variables)))

  with helpers.mode_scope(mode), tf1.Session() as session:
    train = build(tfl, inner, loss_scale, use_resource)
    assert tf1.get_collection(tf1.GraphKeys.TRAIN_OP) == [train]
    session.run(tf1.global_variables_initializer())
    session.run(train)
    tf1.train.Saver().save(session, path)
    expected = train_on(session, train)
  with tf.Graph().as_default(), tf1.Session() as session:
    saver = tf1.train.import_meta_graph(path + ".meta")
    saver.restore(session, path)
    (train,) = tf1.get_collection(tf1.GraphKeys.TRAIN_OP)
    assert train.name == "train"
    trainers.assert_same_state(train_on(session, train), expected)


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_a_step_has_no_more_nodes_than_tensorflows_own(mode):
  counts = []
  for module in (tfl, OWN):
    with helpers.mode_scope(mode) as graph:
      opt = module.MixedPrecisionLossScaleOptimizer(
        INNER["sgd"](), module.DynamicLossScale()
      )
      weights = [tf1.Variable(1.0, use_resource=True) for _ in range(5)]
      opt.minimize(tf.add_n(weights) ** 2)
      made = graph.as_graph_def()
    bodies = [function.node_def for function in made.library.function]
    counts.append(sum(map(len, [made.node, *bodies])))
  assert counts[0] <= counts[1]
