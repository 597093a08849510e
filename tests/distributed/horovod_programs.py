# SPDX-License-Identifier: Apache-2.0
"""Training programs for ranks of Horovod, and the same for one process.

All gradients are multiples of 1/8 below 8, and loss scales are powers of 2. So
sums are exact, in any order, and the states of the ranks and of one process are
the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any

import numpy as np
from switches import control_flow
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1

GRAPH_MODES = ("graph_v1", "graph_v2")
MODES = (*GRAPH_MODES, "eager", "function")
ORDERS = ("inside", "outside")  # Where the loss scale is.
_ROWS = 6  # Of the embedding.

SCALES: dict[str, Callable[[float], Any]] = {
  "dynamic": lambda scale: tfl.DynamicLossScale(scale, 5),
  "growth": lambda scale: policies.GrowthBackoff(
    scale, growth_interval=5, hysteresis=2
  ),
  "contrib": lambda scale: contrib.ExponentialUpdateLossScaleManager(
    scale, 5, 2, 2, 0.5
  ),
}

INNER: dict[str, Callable[[], Any]] = {
  "sgd": lambda: tf1.train.GradientDescentOptimizer(0.5),
  "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
  "adam": lambda: tf1.train.AdamOptimizer(0.1),
}


@dataclasses.dataclass(frozen=True)
class Case:
  """A program to run.

  Attributes:
    mode: One of MODES.
    order: "inside" if Horovod's optimizer wraps that of the loss scale,
      "outside" if it is wrapped.
    scale: One of SCALES.
    inner: One of INNER.
    steps: The number of steps.
    seed: The seed of the gradients.
  """

  mode: str = "graph_v1"
  order: str = "outside"
  scale: str = "dynamic"
  inner: str = "momentum"
  steps: int = 200
  seed: int = 0

  @property
  def name(self) -> str:
    return "-".join((self.mode, self.order, self.scale, self.inner))


@dataclasses.dataclass
class Feeds:
  """What a rank is fed in a step: gradients and the rows of the embedding."""

  dense: np.ndarray
  rows: np.ndarray
  sparse: np.ndarray
  half: np.ndarray

  def list(self) -> list[np.ndarray]:
    return [self.dense, self.rows, self.sparse, self.half]


DTYPES = ("float32", "int32", "float32", "float16")
SHAPES = ((5,), (4,), (4, 3), (3,))


def make_feeds(seed: int, step: int, rank: int) -> Feeds:
  """Returns what a rank is fed in a step; one step of ten has a bad rank."""
  random = np.random.default_rng([seed, step, rank])

  def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (random.integers(-63, 64, shape) / 8).astype(dtype)

  feeds = Feeds(
    draw(SHAPES[0], DTYPES[0]),
    random.integers(0, _ROWS, SHAPES[1]).astype(DTYPES[1]),
    draw(SHAPES[2], DTYPES[2]),
    draw(SHAPES[3], DTYPES[3]),
  )
  if random.random() < 0.1:
    values = (feeds.dense, feeds.sparse, feeds.half)[random.integers(3)]
    bad = (np.inf, -np.inf, np.nan)[random.integers(3)]
    values.flat[random.integers(values.size)] = bad
  return feeds


def wrap(optimizer: Any, case: Case, scale: float) -> Any:
  """Returns an optimizer with a case's loss scale."""
  loss_scale = SCALES[case.scale](scale)
  if case.scale == "contrib":
    return contrib.LossScaleOptimizer(optimizer, loss_scale, sparse="keep")
  return tfl.MixedPrecisionLossScaleOptimizer(optimizer, loss_scale)


class Program:
  """A program of one rank.

  Attributes:
    variables: The trained variables, slots, global step and loss scale, by
      name.
  """

  def __init__(
    self,
    case: Case,
    make_optimizer: Callable[[], Any],
    initial: float = 1.0,
  ) -> None:
    """Builds the program.

    Args:
      case: The case.
      make_optimizer: Returns the optimizer; called in the case's mode.
      initial: The value of all elements of the variables at first.
    """
    self.case = case
    self._stack = contextlib.ExitStack()
    self.graph: Any = None
    if case.mode in GRAPH_MODES:
      self._stack.enter_context(control_flow(case.mode == "graph_v2"))
      self.graph = self._stack.enter_context(tf.Graph().as_default())
    self.trained = [
      tf1.Variable(
        np.full(shape, initial, np.float32), name=name, use_resource=True
      )
      for name, shape in (("v", (5,)), ("e", (_ROWS, 3)), ("h", (3,)))
    ]
    self.global_step = tf1.Variable(
      0, dtype=tf.int64, name="global_step", trainable=False, use_resource=True
    )
    self.opt = make_optimizer()
    self.has_session = False
    if self.graph is not None:
      self.feeds = [tf1.placeholder(d, s) for d, s in zip(DTYPES, SHAPES)]
      self.train_op = self._minimize(*self.feeds)
    elif case.mode == "function":
      self._function = tf.function(self._minimize)

  def _minimize(self, dense: Any, rows: Any, sparse: Any, half: Any) -> Any:
    v, e, h = self.trained

    def loss() -> Any:
      halves = tf.cast(h, tf.float16) * half
      return (
        tf.reduce_sum(v * dense)
        + tf.reduce_sum(tf.gather(e, rows) * sparse)
        + tf.cast(tf.reduce_sum(halves), tf.float32)
      )

    step = self.opt.minimize(
      loss if self.graph is None else loss(),
      var_list=self.trained,
      global_step=self.global_step,
    )
    return None if self.graph is None else step

  def start(self) -> None:
    """Makes a session, if the program has a graph."""
    if self.graph is not None:
      self.session = tf1.Session()
      self.session.run(
        [tf1.global_variables_initializer(), tf1.local_variables_initializer()]
      )

  def step(self, feeds: Feeds) -> None:
    """Takes a step."""
    if self.graph is not None:
      self.session.run(self.train_op, dict(zip(self.feeds, feeds.list())))
      return
    run = self._minimize if self.case.mode == "eager" else self._function
    run(*map(tf.constant, feeds.list()))

  def list_variables(self) -> list[Any]:
    """Returns all variables of the state, in an order that all ranks have."""
    if self.graph is not None:
      return tf1.global_variables()
    return [*self.trained, self.global_step, *self.opt.variables()]

  def state(self) -> np.ndarray:
    """Returns the bytes of all variables: a vector of float64.

    The order of slots in a graph is that of their names.
    """
    loss_scale = find_owner(self.opt)
    inner = find_inner(self.opt)
    parts = [*self.trained, self.global_step]
    for name in sorted(inner.get_slot_names()):
      parts += [inner.get_slot(v, name) for v in self.trained]
    parts += [weight for _, weight in sorted(loss_scale._weights.items())]
    if self.graph is None:
      values = [x.numpy() for x in parts if x is not None]
    else:
      values = self.session.run([x for x in parts if x is not None])
    return np.concatenate([np.ravel(x).astype(np.float64) for x in values])

  def close(self) -> None:
    """Closes the session and leaves the graph."""
    if self.graph is not None:
      self.session.close()
    self._stack.close()


def find_scaled(optimizer: Any) -> Any:
  """Returns the optimizer with a loss scale within an optimizer."""
  while not isinstance(optimizer, tfl.MixedPrecisionLossScaleOptimizer):
    optimizer = optimizer._optimizer
  return optimizer


def find_owner(optimizer: Any) -> Any:
  """Returns the loss scale or the manager of an optimizer."""
  loss_scale = find_scaled(optimizer).loss_scale
  return getattr(loss_scale, "manager", loss_scale)


def find_inner(optimizer: Any) -> Any:
  """Returns the innermost optimizer."""
  while hasattr(optimizer, "_optimizer"):
    optimizer = optimizer._optimizer
  return optimizer


def compute_states(case: Case, ranks: int) -> np.ndarray:
  """Returns the state after each step, by one process without Horovod.

  The process computes the gradients of all ranks by NumPy, with float16's
  overflows, and applies their averages eagerly.

  Args:
    case: The case; its mode and its order do not matter.
    ranks: The number of ranks.
  """
  eager = dataclasses.replace(case, mode="eager")
  program = Program(eager, lambda: wrap(INNER[case.inner](), case, 2.0**10))
  v, e, h = program.trained
  states = []
  for step in range(case.steps):
    fed = [make_feeds(case.seed, step, rank) for rank in range(ranks)]
    owner = find_scaled(program.opt).loss_scale
    scale = np.float32(owner())
    with np.errstate(over="ignore", invalid="ignore"):
      half = np.float16(scale)
      halves = [np.float32(feeds.half * half) / scale for feeds in fed]
      dense = sum(feeds.dense for feeds in fed) / np.float32(ranks)
      summed = sum(halves) / np.float32(ranks)
    grads = [
      tf.constant(dense),
      tf.IndexedSlices(
        tf.constant(
          np.concatenate([feeds.sparse for feeds in fed]) / np.float32(ranks)
        ),
        tf.constant(np.concatenate([feeds.rows for feeds in fed])),
        tf.constant([_ROWS, 3]),
      ),
      tf.constant(summed),
    ]
    program.opt.apply_gradients(
      list(zip(grads, (v, e, h))), global_step=program.global_step
    )
    states.append(program.state())
  program.close()
  return np.stack(states)
