# SPDX-License-Identifier: Apache-2.0
"""Tests that a bypassed loss scale is noticed, and nothing else."""

import contextlib
import logging

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import environment
from tf_compat_lossscale import policies
from tf_compat_lossscale._core import scale_uses

tf1 = tf.compat.v1
_GRAPHS = ("graph_v1", "graph_v2")
_SAID = "the loss was not scaled"


def _sgd():
  return tf1.train.GradientDescentOptimizer(0.1)


def _wrap(scale="dynamic", inner=None):
  return tfl.MixedPrecisionLossScaleOptimizer(inner or _sgd(), scale)


def _manage(manager=None):
  manager = manager or contrib.ExponentialUpdateLossScaleManager(8, 2)
  return contrib.LossScaleOptimizer(_sgd(), manager)


def _honor():
  """Returns an optimizer that has its loss scale by the environment."""
  environment.honor_environment(quiet=True)
  return _sgd()


_MAKERS = {
  "dynamic": _wrap,
  "fixed": lambda: _wrap(128),
  "policy": lambda: _wrap(policies.GrowthBackoff()),
  "manager": _manage,
  "fixed_manager": lambda: _manage(contrib.FixedLossScaleManager(128)),
  "accumulate": lambda: tfl.accumulate(_wrap(), 2),
  "accumulate_contrib": lambda: tfl.accumulate(_manage(), 2),
  "environment": _honor,
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
  monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING", "0")
  monkeypatch.setattr(scale_uses, "process", scale_uses.State())
  yield
  environment.ignore_environment()


def _make(kind, monkeypatch):
  if kind == "environment":
    monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING", "1")
  return _MAKERS[kind]()


class _Program:
  """A program in one of the modes: a model of two variables.

  Attributes:
    optimizer: The optimizer.
    v: The variables, none of them a scalar.
  """

  def __init__(self, mode, make=_wrap):
    self.mode = mode
    self.optimizer = make()
    self.x = tf.constant([[1.0, 2.0, 3.0]])
    create = tf1.get_variable if mode in _GRAPHS else tf.Variable
    self.v = [
      create(name=name, **{key: np.ones(shape, np.float32)})
      for name, shape in (("w", (3, 2)), ("b", (2,)))
      for key in (["initializer"] if mode in _GRAPHS else ["initial_value"])
    ]

  def loss(self):
    y = tf.matmul(self.x, self.v[0]) + self.v[1]
    return tf.reduce_mean(tf.square(y - 1.0))

  def differentiate(self, loss=None, factor=None):
    """Returns the gradients of a loss that `compute_gradients` never got."""
    loss = loss or self.loss
    factor = factor or (lambda: 1.0)
    if self.mode in _GRAPHS:
      return tf.gradients(loss() * factor(), self.v)
    with tf.GradientTape() as tape:
      value = loss() * factor()
    return tape.gradient(value, self.v)

  def compute(self, optimizer=None):
    return (optimizer or self.optimizer).compute_gradients(self.loss, self.v)

  def apply(self, grads, optimizer=None):
    pairs = list(zip(grads, self.v))
    return (optimizer or self.optimizer).apply_gradients(pairs)


@contextlib.contextmanager
def _scope(mode):
  if mode not in _GRAPHS:
    yield
    return
  with helpers.control_flow(mode == "graph_v2"), tf.Graph().as_default():
    yield


def _take(mode, step):
  """Takes a step as the mode says; in graphs, it is built."""
  if mode != "function":
    step()
  else:  # To trace is enough.
    tf.function(step, autograph=False).get_concrete_function()


def _count(caplog):
  return caplog.text.count(_SAID)


_MODES = pytest.mark.parametrize("mode", [*_GRAPHS, "function", "eager"])


@_MODES
@pytest.mark.parametrize("kind", _MAKERS)
def test_gradients_of_an_unscaled_loss_warn_once(
  mode, kind, caplog, monkeypatch
):
  with _scope(mode):
    program = _Program(mode, lambda: _make(kind, monkeypatch))

    def step():
      program.apply(program.differentiate())

    with caplog.at_level(logging.WARNING):
      _take(mode, step)
      _take(mode, step)
  # A fixed scale may be a number of the program's.
  warns = mode in _GRAPHS or not kind.startswith("fixed")
  assert _count(caplog) == warns
  if warns:
    assert f"{type(program.optimizer).__name__}.apply_gradients" in caplog.text
    line = _Program.apply.__code__.co_firstlineno + 2
    assert f"{__file__}:{line}; tf-lossscale scan" in caplog.text


@_MODES
def test_the_inner_optimizer_and_gradients_that_change_warn(mode, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    inner = _sgd()
    program = _Program(mode, lambda: _wrap(inner=inner))

    def step():
      grads, _ = zip(*program.compute(inner))
      grads, _ = tf.clip_by_global_norm(grads, 1.0)
      program.apply(
        [tf.cast(tf.cast(x, tf.float16), tf.float32) for x in grads]
      )

    _take(mode, step)
  assert _count(caplog) == 1


@pytest.mark.parametrize("mode", _GRAPHS)
@pytest.mark.parametrize("scale", [128, "dynamic"])
def test_weight_decay_and_dropout_warn(mode, scale, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    program = _Program(mode, lambda: _wrap(scale))
    program.optimizer.loss_scale()  # As if to log it.
    program.x = tf1.placeholder(tf.float32, [None, 3])
    program.x = tf.nn.dropout(program.x, 0.5)
    frozen = tf1.get_variable("frozen", [3, 2], trainable=False)
    grads = program.differentiate(
      lambda: program.loss() + tf.reduce_sum(frozen)
    )
    grads = [x + 1e-4 * v for x, v in zip(grads, program.v)]
    graph = tf1.get_default_graph()
    tensors = [x for op in graph.get_operations() for x in op.outputs]
    fed = list(filter(graph.is_feedable, tensors))
    program.apply(grads)
    # The search for a scale forbids no feed.
    assert all(map(graph.is_feedable, fed))
  assert _count(caplog) == 1


def test_a_warm_up_by_tiny_gradients_is_no_step(caplog):
  with caplog.at_level(logging.WARNING):
    program = _Program("eager")
    program.apply([tf.fill(v.shape, 1e-9) for v in program.v])
    program.apply([grad for grad, _ in program.compute()])
  assert _count(caplog) == 0


class _Convertible:
  def __tf_tensor__(self, dtype=None, name=None):
    return tf.constant([0.5, 0.5])


@pytest.mark.parametrize("grad", [[0.5, 0.5], _Convertible()])
def test_gradients_that_are_no_tensors(grad, caplog):
  v = tf.Variable([1.0, 2.0])
  _wrap().apply_gradients([(grad, v)])
  np.testing.assert_allclose(v, [0.95, 1.95])
  assert _count(caplog) == 0


# Programs that scale their loss ---------------------------------------------


def _by_hand(program):
  scale = tf.cast(program.optimizer.loss_scale(), tf.float32)
  grads = program.differentiate(factor=lambda: scale)
  return [grad / scale for grad in grads]


def _by_functions(program):
  optimizer = program.optimizer
  scale = optimizer.loss_scale()
  if program.mode in _GRAPHS:
    loss = tfl.gradients.scale(program.loss(), scale)
    return tfl.gradients.unscale(tf.gradients(loss, program.v), scale)
  with tf.GradientTape() as tape:
    loss = tfl.gradients.scale(program.loss(), scale)
  return tfl.gradients.unscale(tape.gradient(loss, program.v), scale)


def _clipped(program):
  grads, _ = tf.clip_by_global_norm([x for x, _ in program.compute()], 1.0)
  return grads


def _averaged(program):
  pairs = zip(program.compute(), program.compute())
  return [(a + b) / 2.0 for (a, _), (b, _) in pairs]


def _replaced(program):
  program.compute()
  return program.differentiate()


def _with_a_second_loss(program):
  pairs = zip(program.compute(), program.differentiate())
  return [grad + more for (grad, _), more in pairs]


def _through_a_cond(program):
  grads = [grad for grad, _ in program.compute()]
  ok = tf.reduce_all([tf.reduce_all(tf.math.is_finite(x)) for x in grads])
  return tf.cond(ok, lambda: grads, lambda: [0.0 * x for x in grads])


def _by_hand_in_a_loop(program):
  def body(i, *sums):
    grads = _by_hand(program)
    return [i + 1, *(a + b for a, b in zip(sums, grads))]

  start = [tf.zeros_like(v) for v in program.v]
  return tf.while_loop(lambda i, *_: i < 2, body, [tf.constant(0), *start])[1:]


def _kept_in_variables(program):
  kept = program.extra
  done = [k.assign_add(g) for k, g in zip(kept, _by_hand(program))]
  if program.mode in _GRAPHS:
    with tf.control_dependencies(done):
      return [k + 0.01 * v for k, v in zip(kept, program.v)]
  return [k + 0.01 * v for k, v in zip(kept, program.v)]


def _zeros(program):
  return [tf.zeros_like(v) for v in program.v]


def _in_numpy(program):
  grads = [grad for grad, _ in program.compute()]
  return [tf.numpy_function(lambda x: x, [x], tf.float32) for x in grads]


@_MODES
@pytest.mark.parametrize(
  "compute",
  [
    _by_hand,
    _by_functions,
    _clipped,
    _averaged,
    _replaced,
    _with_a_second_loss,
    _through_a_cond,
    _by_hand_in_a_loop,
    _kept_in_variables,
    _zeros,
    _in_numpy,
  ],
)
def test_no_false_alarm(mode, compute, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    program = _Program(mode)
    program.extra = [
      tf1.get_variable(
        f"kept{i}", initializer=tf.zeros_like(v), trainable=False
      )
      if mode in _GRAPHS
      else tf.Variable(tf.zeros_like(v), trainable=False)
      for i, v in enumerate(program.v)
    ]

    def step():
      grads = compute(program)
      program.apply([tf.reshape(x, v.shape) for x, v in zip(grads, program.v)])

    _take(mode, step)
  assert _count(caplog) == 0


@_MODES
def test_a_scale_of_one_has_nothing_to_lose(mode, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    for make in (
      lambda: _wrap(1),
      lambda: _manage(contrib.FixedLossScaleManager(1)),
    ):
      with tf1.variable_scope(None, "of"):
        program = _Program(mode, make)
      _take(mode, lambda p=program: p.apply(p.differentiate()) and None)
  assert _count(caplog) == 0


@_MODES
@pytest.mark.parametrize("kind", ["fixed", "fixed_manager"])
def test_a_fixed_scale_by_hand(mode, kind, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    program = _Program(mode, _MAKERS[kind])

    def step():
      optimizer = program.optimizer
      if kind == "fixed":
        scale = optimizer.loss_scale()
      else:
        scale = optimizer.loss_scale_manager.get_loss_scale()
      grads = program.differentiate(factor=lambda: scale)
      program.apply([grad / scale for grad in grads])

    _take(mode, step)
  assert _count(caplog) == 0


@_MODES
@pytest.mark.parametrize("reverse", [False, True])
def test_one_optimizer_computes_and_another_applies(mode, reverse, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    program = _Program(mode)
    pair = program.optimizer, tfl.accumulate(program.optimizer, 2)
    first, second = reversed(pair) if reverse else pair

    def step():
      program.apply([grad for grad, _ in program.compute(first)], second)

    _take(mode, step)
  assert _count(caplog) == 0


def test_functions_that_compute_and_apply(caplog):
  with caplog.at_level(logging.WARNING):
    for compute in (_by_hand, _clipped):
      program = _Program("function")
      apply = tf.function(
        lambda grads, p=program: p.apply(grads) and None, autograph=False
      )
      # Traced before anything is computed.
      apply.get_concrete_function([tf.TensorSpec(v.shape) for v in program.v])
      apply.get_concrete_function(compute(program))
      assert _count(caplog) == 0
    # The scale is an argument.
    program = _Program("function")

    @tf.function(autograph=False)
    def step(scale):
      grads = program.differentiate(factor=lambda: scale)
      program.apply([grad / scale for grad in grads])

    step.get_concrete_function(program.optimizer.loss_scale())
  assert _count(caplog) == 0


@pytest.mark.parametrize("mode", _GRAPHS)
def test_graphs_that_are_fed(mode, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    # The step is built before the gradients, and is fed.
    program = _Program(mode)
    feeds = [tf1.placeholder(tf.float32, v.shape) for v in program.v]
    program.apply(tf.clip_by_global_norm(feeds, 1.0)[0])
    kept = [
      tf1.get_variable(
        f"kept{i}", initializer=tf.zeros_like(v), trainable=False
      )
      for i, v in enumerate(program.v)
    ]
    program.apply([k + 0.01 * v for k, v in zip(kept, program.v)])
    # The scale is fed.
    program.optimizer.loss_scale()
    scale = tf1.placeholder(tf.float32, [])
    grads = program.differentiate(factor=lambda: scale)
    program.apply([grad / scale for grad in grads])
  assert _count(caplog) == 0


@pytest.mark.parametrize("mode", _GRAPHS)
def test_a_scale_that_is_only_logged_is_bypassed(mode, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    program = _Program(mode)
    tf1.summary.scalar("loss_scale", program.optimizer.loss_scale())
    program.apply(program.differentiate())
  assert _count(caplog) == 1


def _in_placeholders(program, scale):
  del scale
  return [tf1.placeholder(tf.float32, v.shape) for v in program.v]


def _in_a_queue(program, scale):
  grads = program.differentiate(factor=lambda: scale)
  queue = tf1.FIFOQueue(9, [tf.float32] * 2, [v.shape for v in program.v])
  queue.enqueue([grad / scale for grad in grads])
  return queue.dequeue()


def _in_an_accumulator(program, scale):
  kept = []
  for grad in program.differentiate(factor=lambda: scale):
    accumulator = tf1.ConditionalAccumulator(tf.float32, grad.shape)
    accumulator.apply_grad(grad / scale)
    kept.append(accumulator.take_grad(1))
  return kept


def _in_one_buffer(program, scale):
  grads = program.differentiate(factor=lambda: scale)
  kept = tf1.get_variable("kept", [8], trainable=False)
  kept.assign_add(tf.concat([tf.reshape(x / scale, [-1]) for x in grads], 0))
  parts = tf.split(kept, [6, 2])
  return [tf.reshape(x, v.shape) for x, v in zip(parts, program.v)]


def _in_defaults(program, scale):
  grads = program.differentiate(factor=lambda: scale)
  return [tf1.placeholder_with_default(x / scale, x.shape) for x in grads]


def _by_a_value(make):
  """Returns a function that scales by a tensor that was not read in graph."""

  def compute(program, scale):
    value = make(scale)
    grads = program.differentiate(factor=lambda: value)
    return [grad / value for grad in grads]

  return compute


def _copy(scale):
  copy = tf1.get_variable("copy", initializer=1.0, trainable=False)
  copy.assign(scale)
  return copy


_FED = {
  "placeholders": _in_placeholders,
  "queue": _in_a_queue,
  "accumulator": _in_an_accumulator,
  "one_buffer": _in_one_buffer,
  "defaults": _in_defaults,
  "copy": _by_a_value(_copy),
  "vector": _by_a_value(
    lambda _: tf.reduce_mean(tf1.placeholder(tf.float32, [None]))
  ),
  "dataset": _by_a_value(
    lambda _: tf1.data.make_initializable_iterator(
      tf.data.Dataset.from_tensors(8.0)
    ).get_next()
  ),
  "function": _by_a_value(
    lambda _: tf.reshape(tf.numpy_function(lambda: 8.0, [], tf.float32), [])
  ),
}


@pytest.mark.parametrize("mode", _GRAPHS)
@pytest.mark.parametrize("way", _FED)
def test_gradients_or_a_scale_that_come_from_elsewhere(mode, way, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    program = _Program(mode)
    grads = _FED[way](program, program.optimizer.loss_scale())
    program.apply([x + 1e-4 * v for x, v in zip(grads, program.v)])
  assert _count(caplog) == 0


_NUMBERS = {
  "integer": lambda: tf.cast(128, tf.float32),
  "variable": lambda: tf1.get_variable("s", initializer=128.0, trainable=False),
  "default": lambda: tf1.placeholder_with_default(128.0, []),
  "factors": lambda: tf.constant(64.0) * 2.0,
}


@pytest.mark.parametrize("mode", _GRAPHS)
@pytest.mark.parametrize("kind", _NUMBERS)
def test_a_fixed_scale_by_a_number(mode, kind, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    program = _Program(mode, lambda: _wrap(128))
    scale = _NUMBERS[kind]()
    grads = program.differentiate(factor=lambda: scale)
    program.apply([grad / scale for grad in grads])
  assert _count(caplog) == 0


@_MODES
@pytest.mark.parametrize("scale", ["dynamic", 256])
def test_two_wrappers_apply_what_one_computed(mode, scale, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    program, other = _Program(mode), _wrap(scale)

    def step():
      first, second = program.compute()
      program.optimizer.apply_gradients([first])
      other.apply_gradients([second])

    _take(mode, step)
  assert _count(caplog) == 0


@_MODES
def test_an_inner_optimizer_that_scales(mode, caplog):
  class Scaling(tf1.train.GradientDescentOptimizer):
    def compute_gradients(self, loss, *args, **kwargs):
      scaled = loss * 10.0 if mode in _GRAPHS else lambda: loss() * 10.0
      pairs = super().compute_gradients(scaled, *args, **kwargs)
      return [(grad / 10.0, var) for grad, var in pairs]

  with _scope(mode), caplog.at_level(logging.WARNING):
    inner = Scaling(0.1)
    program = _Program(mode, lambda: _wrap(inner=inner))
    loss = program.loss() if mode in _GRAPHS else program.loss

    def step():
      pairs = inner.compute_gradients(loss, program.v)
      program.optimizer.apply_gradients(pairs)

    _take(mode, step)
  assert _count(caplog) == 0


@pytest.mark.parametrize(
  "read",
  [
    lambda x: x.variables()[-2],
    lambda x: x.loss_scale._weights["current_loss_scale"],
  ],
)
def test_a_scale_that_is_read_from_the_variables(read, caplog):
  with caplog.at_level(logging.WARNING):
    program = _Program("eager")
    scale = read(program.optimizer)
    grads = program.differentiate(factor=lambda: scale)
    program.apply([grad / scale for grad in grads])
  assert _count(caplog) == 0


class _OwnScale(tfl.LossScale):
  """A loss scale as programs write it, which hold their variable."""

  def __init__(self):
    super().__init__()
    self.held = self._add_weight("mine", 8.0, tf.float32)

  def __call__(self):
    return tf.convert_to_tensor(self.held)

  def update(self, grads):
    return tf.no_op(), True

  def get_config(self):
    return {}


class _OwnManager:
  """A manager as programs write it."""

  def __init__(self):
    self.held = tf1.Variable(8.0, trainable=False, use_resource=True)

  def get_loss_scale(self):
    return self.held

  def update_loss_scale(self, finite):
    return tf.no_op()


@_MODES
@pytest.mark.parametrize("cls", [_OwnScale, _OwnManager])
@pytest.mark.parametrize("scales", [True, False])
def test_classes_of_the_program(mode, cls, scales, caplog):
  with _scope(mode), caplog.at_level(logging.WARNING):
    own = cls()
    make = _wrap if cls is _OwnScale else _manage
    program = _Program(mode, lambda: make(own))

    def step():
      factor = tf.convert_to_tensor(own.held) if scales else 1.0
      grads = program.differentiate(factor=lambda: factor)
      program.apply([grad / factor for grad in grads])

    _take(mode, step)
  # Nothing tells whether the program read its own variable.
  assert _count(caplog) == 0


@pytest.mark.parametrize("scales", [True, False])
@pytest.mark.parametrize("mode", ["function", "eager"])
def test_replicas(mode, scales, caplog):
  strategy = helpers.two_replicas()
  with strategy.scope(), caplog.at_level(logging.WARNING):
    program = _Program(mode)

    def replica():
      if scales:
        program.apply([grad for grad, _ in program.compute()])
      else:
        program.apply(program.differentiate())

    _take(mode, lambda: strategy.run(replica) and None)
  assert _count(caplog) == (not scales)


def test_each_graph_is_judged_for_itself(caplog):
  with tf.Graph().as_default(), caplog.at_level(logging.WARNING):
    program = _Program("graph_v2")
    other = _wrap()
    program.apply([grad for grad, _ in program.compute()])
    program.apply(program.differentiate(), other)
    assert _count(caplog) == 0
    with tf.Graph().as_default():
      program = _Program("graph_v2")
      program.apply(program.differentiate(), other)
  assert _count(caplog) == 1


def test_a_wrapper_by_the_environment_that_computes_by_the_inner(
  monkeypatch, caplog
):
  class Wrapper(tf1.train.Optimizer):
    def __init__(self, inner):
      super().__init__(False, "wrapper")
      self.held = inner

    def compute_gradients(self, *args, **kwargs):
      return self.held.compute_gradients(*args, **kwargs)

    def _resource_apply_dense(self, grad, var):
      return self.held._resource_apply_dense(grad, var)

    def _prepare(self):
      self.held._prepare()

  with tf.Graph().as_default(), caplog.at_level(logging.WARNING):
    program = _Program("graph_v2", lambda: _make("environment", monkeypatch))
    wrapper = Wrapper(program.optimizer)
    program.apply([grad for grad, _ in program.compute(wrapper)], wrapper)
  assert _count(caplog) == 0


@pytest.mark.parametrize("scales", [True, False])
def test_shapes_of_tensorflow_1(scales, caplog):
  tf1.disable_v2_tensorshape()
  try:
    with tf.Graph().as_default(), caplog.at_level(logging.WARNING):
      program = _Program("graph_v1")
      program.apply(_by_hand(program) if scales else program.differentiate())
  finally:
    tf1.enable_v2_tensorshape()
  assert _count(caplog) == (not scales)


class _FixedOtherwise(tfl.FixedLossScale):
  def __init__(self):
    super().__init__(8)

  def get_config(self):
    return {}


class _RisingManager(_OwnManager):
  @property
  def loss_scale(self):
    raise RuntimeError("read by nobody")


@pytest.mark.parametrize(
  ("make", "warns"),
  [
    (lambda: _wrap(_FixedOtherwise()), True),
    (lambda: _manage(_RisingManager()), False),
  ],
)
def test_a_fixed_value_is_not_asked_of_the_program(make, warns, caplog):
  with tf.Graph().as_default(), caplog.at_level(logging.WARNING):
    program = _Program("graph_v1", make)
    program.apply(program.differentiate())
  assert _count(caplog) == warns
