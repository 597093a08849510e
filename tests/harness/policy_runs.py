# SPDX-License-Identifier: Apache-2.0
"""Runs of scaling policies in every mode, and random arguments for them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import math
import random
from typing import Any

import helpers
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
INF = float("inf")


class Training:
  """Training of two variables by given gradients, with a loss scale.

  The gradients of `v` are the given number and, in the other elements, 1; those
  of `w` are 1.

  Attributes:
    loss_scale: The loss scale.
    session: The session; None if the mode has none.
  """

  def __init__(
    self,
    make: Callable[[], tfl.LossScale],
    mode: str,
    strategy: tf.distribute.Strategy | None = None,
    config: tf1.ConfigProto | None = None,
  ) -> None:
    """Builds the training.

    Args:
      make: Creates the loss scale.
      mode: One of `helpers.MODES`.
      strategy: Where to train. The first replica gets the given gradient, the
        others a gradient of 1.
      config: The configuration of the session.
    """
    self._mode, self._strategy, self._config = mode, strategy, config
    self._make = make
    self.session: tf1.Session | None = None

  def __enter__(self) -> Training:
    with contextlib.ExitStack() as stack:
      graph = stack.enter_context(helpers.mode_scope(self._mode))
      if self._strategy:
        stack.enter_context(self._strategy.scope())
      v = (
        tf1.get_variable("v", initializer=tf.ones([3]), use_resource=True)
        if graph
        else tf.Variable(tf.ones([3]), name="v")
      )
      w = (
        tf1.get_variable("w", initializer=1.0, use_resource=True)
        if graph
        else tf.Variable(1.0, name="w")
      )
      self.loss_scale = self._make()
      self._inner = tf1.train.MomentumOptimizer(0.001, 0.9)
      opt = tfl.MixedPrecisionLossScaleOptimizer(self._inner, self.loss_scale)
      self.variables = [v, w]

      def apply(given: tf.Tensor) -> Any:
        if self._strategy:
          context = tf.distribute.get_replica_context()
          first = tf.equal(context.replica_id_in_sync_group, 0)
          given = tf.where(first, given, 1.0)
        pairs = [(tf.stack([given, 1.0, 1.0]), v), (tf.ones([]), w)]
        op = opt.apply_gradients(pairs)
        return op if graph else None

      def run(given: tf.Tensor) -> Any:
        if self._strategy:
          return self._strategy.run(apply, (given,))
        return apply(given)

      if graph:
        self._fed = tf1.placeholder(tf.float32, [])
        ops = run(self._fed)
        if self._strategy:
          ops = self._strategy.experimental_local_results(ops)
        self._ops, self._scale = ops, self.loss_scale()
        self._weights = self._list_weights()
        self.session = tf1.Session(graph=graph, config=self._config)
        self.session.run(tf1.global_variables_initializer())
      elif self._mode == "function":
        self._run = tf.function(run, autograph=False)
      else:
        self._run = run
      self._scopes = stack.pop_all()
    return self

  def __exit__(self, *exc_info: Any) -> None:
    if self._mode in helpers.GRAPH_MODES:
      self.session.close()
    self._scopes.close()

  def _list_weights(self) -> dict[str, tf.Variable]:
    names = (
      self.loss_scale.rule.start()._fields
      if hasattr(self.loss_scale, "rule")
      else ("current_loss_scale", "good_steps")
    )
    return {name: self.loss_scale._get_weight(name) for name in names}

  def step(self, given: float) -> float:
    """Runs a step with a gradient; returns the scale."""
    if self._mode in helpers.GRAPH_MODES:
      self.session.run(self._ops, {self._fed: given})
      return float(self.session.run(self._scale))
    self._run(tf.constant(given))
    return float(self.loss_scale().numpy())

  def steps(self, given: Iterable[float]) -> list[float]:
    """Runs steps; returns the scale after each."""
    return [self.step(each) for each in given]

  def read_state(self) -> dict[str, float]:
    """Returns the values of the loss scale's weights."""
    if self._mode in helpers.GRAPH_MODES:
      values = self.session.run(self._weights)
    else:
      values = {
        name: tf.convert_to_tensor(weight).numpy()
        for name, weight in self._list_weights().items()
      }
    return {name: value.item() for name, value in values.items()}

  def read_variables(self) -> list[Any]:
    """Returns the values of the variables and of Momentum's slots."""
    variables = [
      *self.variables,
      *(self._inner.get_slot(v, "momentum") for v in self.variables),
    ]
    if self._mode in helpers.GRAPH_MODES:
      values = self.session.run([tf.convert_to_tensor(x) for x in variables])
    else:
      values = [tf.convert_to_tensor(x).numpy() for x in variables]
    return [value.tolist() for value in values]


def draw_growth_backoff(rng: random.Random) -> dict[str, Any]:
  """Returns random arguments of `GrowthBackoff` that make much happen."""
  lowest = rng.choice([None, 2.0**-126, 1e-4, 0.3, 1.0, 7.0])
  interval = rng.randint(1, 5)
  highest = rng.choice([None, None, 9.0, 300.0, 2.0**127])
  return {
    "initial_loss_scale": rng.choice([7.0, 8.0, 9.0]),
    "growth_factor": rng.choice([2, 2.0, 1.7, 4.0, 2.0**100]),
    "backoff_factor": rng.choice([0.5, 0.8, 1 / 3, 2.0**-100]),
    "growth_interval": interval,
    "min_loss_scale": lowest,
    "max_loss_scale": highest,
    "hysteresis": rng.choice([1, 1, 2, 3]),
    "refill": tuple(
      each for each in ("growth", "backoff", "finite") if rng.random() < 0.5
    ),
    "overflow_tolerance": rng.choice([0, 0, 0.2, 0.5, 1.0]),
    "overflow_reset": tuple(
      each for each in ("growth", "backoff") if rng.random() < 0.5
    ),
    "good_steps_after_growth": rng.choice([0, 0, interval - 1]),
  }


def draw_log_normal(rng: random.Random) -> dict[str, Any]:
  """Returns random arguments of `LogNormal` that make much happen."""
  return {
    "initial_loss_scale": 2.0 ** rng.randint(0, 20),
    "overflow_probability": rng.choice([0.001, 0.1, 0.4]),
    "limit": rng.choice([65504.0, 2.0**10]),
    "mean_decay": rng.choice([0.99, 0.5]),
    "variance_decay": rng.choice([0.999, 0.7]),
    "warmup_steps": rng.randint(1, 5),
    "backoff_factor": rng.choice([0.5, 0.3]),
    "recovery_interval": rng.randint(1, 6),
    "min_loss_scale": rng.choice([1.0, 2.0**-20]),
    "max_loss_scale": rng.choice([2.0**24, 2.0**21, 2.0**127]),
  }


def draw_gradients(rng: random.Random, count: int) -> list[float]:
  """Returns random gradients, some of them not finite."""
  share = rng.choice([0.05, 0.3, 0.6])
  return [
    rng.choice([INF, -INF, math.nan])
    if rng.random() < share
    else rng.choice([0.0, 2.0 ** rng.randint(-30, 10), -rng.random()])
    for _ in range(count)
  ]


# The classes, and functions that return random arguments for them.
CLASSES: dict[type[Any], Callable[[random.Random], dict[str, Any]]] = {
  policies.GrowthBackoff: draw_growth_backoff,
  policies.LogNormal: draw_log_normal,
}


def find_states(
  policy: Any, gradients: Iterable[float]
) -> tuple[list[float], list[dict[str, float]]]:
  """Returns the scales and states after steps, by the rule in plain Python.

  Args:
    policy: The policy.
    gradients: The largest gradient of each step. In `Training`, all other
      gradients are 1.
  """
  rule = policy.rule
  state, scales, states = rule.start(), [], []
  for given in gradients:
    if isinstance(rule, policies.LogNormalRule):
      # Training has further gradients of 1; a NaN is not finite.
      largest = max(abs(given), 1.0) if math.isfinite(given) else INF
      state = rule.step(state, largest)
    else:
      state = rule.step(state, math.isfinite(given))
    scales.append(rule.clip(state.current_loss_scale))
    states.append(state._asdict())
  return scales, states
