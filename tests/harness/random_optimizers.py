# SPDX-License-Identifier: Apache-2.0
"""Random optimizers whose `apply_gradients` has additional effects.

Optimizers such as LAMB, LARS and AdamWeightDecay override `apply_gradients`. A
skipped step must not run their ops, however TensorFlow's graph optimizers
rewrite the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import random
from typing import Any

from helpers import INNER
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function as defun

tf1 = tf.compat.v1

_Fn = Callable[[tf.Tensor], tf.Tensor]


def _looped(x: tf.Tensor) -> tf.Tensor:
  return tf.while_loop(
    lambda i, _: i < 2,
    lambda i, y: (i + 1, y * 0.5),
    [0, x],
    shape_invariants=[tf.TensorShape([]), x.shape],
  )[1]


# Functions that keep a tensor's shape. Most keep its value, too.
_STEPS: dict[str, _Fn] = {
  "identity": tf.identity,
  "broadcast": lambda x: tf.broadcast_to(x, x.shape),
  "reshape": lambda x: tf.reshape(tf.reshape(x, [-1]), x.shape),
  "transpose": lambda x: tf.transpose(tf.transpose(x)),
  "expand": lambda x: tf.squeeze(tf.expand_dims(x, 0), [0]),
  "stack": lambda x: tf.unstack(tf.stack([x]))[0],
  "concat": lambda x: tf.reshape(tf.concat([tf.reshape(x, [-1])], 0), x.shape),
  "slice": lambda x: tf.slice(x, tf.zeros([x.shape.rank], tf.int32), x.shape),
  "tile": lambda x: tf.reshape(tf.tile(tf.reshape(x, [-1]), [1]), x.shape),
  "cast": lambda x: tf.cast(tf.cast(x, tf.float64), x.dtype),
  "times one": lambda x: x * 1.0,
  "times zero": lambda x: x * 0.0,
  "plus zero": lambda x: x + 0.0,
  "minus itself": lambda x: x - x,
  "zeros": tf.zeros_like,
  "ones": tf.ones_like,
  "constant": lambda x: tf.constant(0.25, x.dtype, x.shape),
  "size": lambda x: tf.fill(x.shape, tf.cast(tf.size(x), x.dtype)),
  "shape": lambda x: tf.ones(tf.shape(x)),
  "fill": lambda x: tf.fill(tf.shape(x), 0.5),
  "power zero": lambda x: tf.pow(x, 0.0),
  "select": lambda x: tf.where(tf.fill(x.shape, True), x, x + 1.0),
  "stop": tf.stop_gradient,
  "norm": lambda x: tf.clip_by_global_norm([x], 2.0)[0][0],
  "cond": lambda x: tf.cond(tf.size(x) > 0, lambda: x + 1.0, lambda: x),
  "cond on value": lambda x: tf.cond(
    tf.reduce_sum(x) > 0.5, lambda: x * 2.0, lambda: x * 0.5
  ),
  "loop": _looped,
  "numpy": lambda x: tf.numpy_function(
    lambda value: value + np.float32(1), [x], x.dtype
  ),
}


class _Effects:
  """A set of objects that ops of an applied step change.

  The objects are variables, a queue, a table, an accumulator and a Python list.

  Attributes:
    calls: The list, which grows by an element with each call of `_call`.
    sizes: Tensors with the sizes of the queue, the table and the accumulator.
  """

  def __init__(
    self, rng: random.Random, shapes: list[Any], use_resource: bool
  ) -> None:
    self._rng = rng
    self._variables = [
      tf1.get_variable(
        f"effect_{i}",
        shape,
        initializer=tf1.ones_initializer(),
        trainable=False,
        use_resource=use_resource,
      )
      for i, shape in enumerate(shapes)
    ]
    self._queue = tf.queue.FIFOQueue(1000, [tf.float32], shared_name="")
    self._table = tf.lookup.experimental.DenseHashTable(
      tf.int64, tf.float32, -1.0, empty_key=-1, deleted_key=-2
    )
    self._accumulator = tf1.ConditionalAccumulator(tf.float32, [])
    self.calls: list[int] = []
    self.sizes = [
      self._queue.size(),
      self._table.size(),
      self._accumulator.num_accumulated(),
    ]
    # Functions cannot capture reference variables, and a v2 loop is a function.
    self._kinds = {
      name.removeprefix("_by_"): getattr(self, name)
      for name in dir(type(self))
      if name.startswith("_by_")
      and (use_resource or not name.endswith(("function", "loop")))
    }

  def add(self, i: int, x: tf.Tensor) -> tf.Operation:
    """Returns an op with a random effect, mostly one that depends on `x`."""
    kind = self._rng.choice(list(self._kinds))
    self._key = 1000 * i
    (done,) = tf.nest.flatten(self._kinds[kind](self._variables[i], x))
    return done if isinstance(done, tf.Operation) else done.op

  def _read_value(self) -> bool:
    return self._rng.random() < 0.5

  def _by_assign(self, variable, x):
    return variable.assign(x, read_value=self._read_value())

  def _by_assign_add(self, variable, x):
    return variable.assign_add(x, read_value=self._read_value())

  def _by_assign_of_own_value(self, variable, x):
    return variable.assign(tf.identity(variable) * 0.5 + x)

  def _by_assign_of_constant(self, variable, x):
    with tf.control_dependencies([x]):
      return variable.assign_add(tf.constant(0.5, shape=x.shape))

  def _by_assign_in_loop(self, variable, x):
    def body(i):
      with tf.control_dependencies([variable.assign_add(x)]):
        return i + 1

    return tf.while_loop(lambda i: i < 2, body, [0], parallel_iterations=1)

  def _by_scatter(self, variable, x):
    if not x.shape.rank:
      return self._by_assign(variable, x)
    return variable.scatter_add(tf.IndexedSlices(x[:1], tf.constant([0])))

  def _by_cond_function(self, variable, x):
    return tf.cond(
      tf.reduce_max(x) < 1e30,
      lambda: tf.identity(variable.assign_add(x)),
      lambda: tf.identity(variable.assign_sub(x)),
    )

  def _by_function(self, variable, x):
    return tf.function(lambda y: variable.assign_add(y * 1.0))(x)

  def _by_nested_function(self, variable, x):
    inner = tf.function(lambda y: variable.assign_add(y + self._called(y)))
    return tf.function(lambda y: inner(tf.reshape(y, x.shape)))(x)

  def _by_defun_function(self, variable, x):
    @defun.Defun(x.dtype)
    def assign(value):
      with tf.control_dependencies(
        [tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=value)]
      ):
        return tf.identity(value)

    return assign(x)

  def _by_call(self, variable, x):
    return self._called(x)

  def _by_call_with_constant(self, variable, x):
    return self._called(tf.constant(1.0))

  def _by_enqueue(self, variable, x):
    return self._queue.enqueue(tf.reduce_sum(x))

  def _by_insert(self, variable, x):
    key = self._table.size() + self._key  # A new key each time.
    return self._table.insert(key, tf.reduce_sum(x))

  def _by_accumulator(self, variable, x):
    # A local step ahead of every time step, so the gradient is never too old.
    return self._accumulator.apply_grad(tf.reduce_sum(x), local_step=1 << 40)

  def _called(self, x):
    y = tf.numpy_function(self._call, [x], tf.float32)
    y.set_shape([])
    return y

  def _call(self, value: Any) -> np.float32:
    self.calls.append(1)
    return np.float32(np.sum(value))


def _rate(rng: random.Random) -> Any:
  """Returns a learning rate in a random form that programs use."""
  variable = tf1.get_variable("rate", initializer=0.125, trainable=False)
  return rng.choice(
    [
      0.1,
      tf.constant(0.1),
      variable,
      lambda: 0.1,
      lambda: tf.identity(variable) * 0.5,
      tf1.placeholder_with_default(0.25, []),
      tf1.train.exponential_decay(0.1, 3, 2, 0.5),
    ]
  )


_BASES: dict[str, Callable[[Any], tf1.train.Optimizer]] = {
  "sgd": tf1.train.GradientDescentOptimizer,
  "momentum": lambda rate: tf1.train.MomentumOptimizer(rate, 0.9),
  "adam": tf1.train.AdamOptimizer,
  "rmsprop": tf1.train.RMSPropOptimizer,
  "adagrad": tf1.train.AdagradOptimizer,
  "adadelta": tf1.train.AdadeltaOptimizer,
}


class RandomOptimizer(tf1.train.Optimizer):
  """A random optimizer with random effects; a seed always gives the same.

  Attributes:
    calls: The `calls` of the effects.
    sizes: The `sizes` of the effects.
  """

  def __init__(
    self, seed: int, shapes: Iterable[Any], use_resource: bool
  ) -> None:
    super().__init__(False, "Random")
    self._rng = random.Random(seed)
    self._effects = _Effects(self._rng, list(shapes), use_resource)
    self.calls, self.sizes = self._effects.calls, self._effects.sizes
    self._kind = self._rng.choice(["lamb", "lars", "usual", *INNER])
    base = _BASES[self._rng.choice(list(_BASES))](_rate(self._rng))
    self._base = INNER[self._kind]() if self._kind in INNER else base

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    pairs = list(grads_and_vars)
    effects, applied = [], []
    for i, (grad, var) in enumerate(pairs):
      values = grad.values if isinstance(grad, tf.IndexedSlices) else grad
      if values.shape == var.shape:
        effects.append(self._effects.add(i, self._path(values)))
      if not isinstance(grad, tf.IndexedSlices) and self._rng.random() < 0.5:
        grad = self._path(grad)
      applied.append((grad, var))
    # No base reads an effect's variables, so effects may run before or after.
    if self._rng.random() < 0.5:
      with tf.control_dependencies(effects):
        return self._apply(applied, global_step, name)
    return tf.group(self._apply(applied, global_step, name), *effects)

  def _path(self, x: tf.Tensor) -> tf.Tensor:
    for _ in range(self._rng.randrange(4)):
      step = self._rng.choice(list(_STEPS))
      shape = x.shape
      x = _STEPS[step](x)
      x.set_shape(shape)
    return x

  def _apply(self, pairs, global_step, name):
    if self._kind == "lamb":
      pairs = [(self._ratio(g, v), v) for g, v in pairs]
    if self._kind in ("lamb", "lars"):
      return self._assign(pairs, global_step, name)
    return self._base.apply_gradients(pairs, global_step, name)

  def _assign(self, pairs, global_step, name):
    """Applies gradients by plain assignments, as LAMB in Python does."""
    ops = []
    for grad, var in pairs:
      new = tf.identity(var) - 0.1 * tf.convert_to_tensor(grad)
      ops.append(var.assign(new))
    if global_step is not None:
      ops.append(global_step.assign_add(1))
    return tf.group(*ops, name=name)

  def _ratio(self, grad, var):
    grad = tf.convert_to_tensor(grad)
    weight, size = tf.norm(tf.identity(var)), tf.norm(grad)
    ratio = tf.where(
      weight > 0, tf.where(size > 0, weight / size, 1.0), tf.constant(1.0)
    )
    return grad * ratio


def session_config(rng: random.Random) -> tf1.ConfigProto:
  """Returns a session's configuration with random graph optimizers on."""
  config = tf1.ConfigProto()
  config.inter_op_parallelism_threads = rng.choice([0, 1, 4])
  options = config.graph_options
  rewrites = options.rewrite_options
  rewrites.min_graph_nodes = -1
  for name in (
    "constant_folding",
    "arithmetic_optimization",
    "dependency_optimization",
    "shape_optimization",
    "remapping",
    "loop_optimization",
    "layout_optimizer",
    "debug_stripper",
    "implementation_selector",
    "common_subgraph_elimination",
    "pin_to_host_optimization",
  ):
    setattr(rewrites, name, rng.choice([0, 1, 1, 2]))
  rewrites.function_optimization = rng.choice([0, 1, 2, 3])
  rewrites.meta_optimizer_iterations = rng.choice([0, 1, 2])
  rewrites.disable_meta_optimizer = rng.random() < 0.1
  optimizer = options.optimizer_options
  optimizer.opt_level = rng.choice([0, -1])
  optimizer.do_function_inlining = rng.random() < 0.5
  optimizer.do_constant_folding = rng.random() < 0.5
  optimizer.do_common_subexpression_elimination = rng.random() < 0.5
  return config
