# SPDX-License-Identifier: Apache-2.0
"""A trainer for every mode, and what its runs must agree on."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any

import helpers
import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Spec:
  """A variable to train.

  Attributes:
    shape: The variable's shape.
    dtype: The variable's dtype.
    kind: The kind of gradient: 'dense', 'sparse' (row 0 twice), 'float16'
      (dense, computed in float16) or 'none' (no gradient).
  """

  shape: tuple[int, ...] = (2,)
  dtype: str = "float32"
  kind: str = "dense"

  @property
  def fed(self) -> tuple[int, ...]:
    """Returns the shape of the array to feed for the gradient."""
    return (2, *self.shape[1:]) if self.kind == "sparse" else self.shape

  @property
  def fed_dtype(self) -> str:
    """Returns the dtype of the array to feed for the gradient."""
    return "float16" if self.kind == "float16" else self.dtype


class Trainer:
  """A training program in any mode, whose gradients the test chooses.

  Args:
    mode: One of helpers.MODES.
    make_optimizer: Returns the optimizer; it is called in the mode.
    specs: The variables.
    apply_only: Whether to pass the gradients to `apply_gradients`. Otherwise
      `minimize` gets a loss that has these gradients.
    use_resource: False for reference variables, which need a graph mode.
    strategy: Where to train.
    replica: The replica that gets the given gradients; others get ones.
    config: The configuration of the session.
  """

  def __init__(
    self,
    mode: str,
    make_optimizer: Callable[[], tf1.train.Optimizer],
    specs: tuple[Spec, ...] = (Spec(),),
    apply_only: bool = False,
    use_resource: bool = True,
    strategy: tf.distribute.Strategy | None = None,
    replica: int = 0,
    config: tf1.ConfigProto | None = None,
  ):
    self.mode, self.specs, self._apply_only = mode, specs, apply_only
    self._strategy, self._replica, self._config = strategy, replica, config
    self._graph_state: dict[str, tf.Variable] | None = None
    self._read_scale: tf.Tensor | None = None
    self.session: tf1.Session | None = None
    with contextlib.ExitStack() as stack:
      self.graph = stack.enter_context(helpers.mode_scope(mode))
      if strategy:
        stack.enter_context(strategy.scope())
      self._set_up(make_optimizer, use_resource)
      self._stack = stack.pop_all()

  def _set_up(
    self,
    make_optimizer: Callable[[], tf1.train.Optimizer],
    use_resource: bool,
  ) -> None:
    self.variables = [
      tf1.Variable(
        np.ones(spec.shape),
        dtype=spec.dtype,
        name=f"v{i}",
        use_resource=use_resource,
      )
      for i, spec in enumerate(self.specs)
    ]
    self.global_step = tf1.Variable(
      0,
      dtype=tf.int64,
      name="global_step",
      use_resource=use_resource,
      aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    self.opt = make_optimizer()
    if self.mode == "function":
      # AutoGraph would rewrite the package's code, which takes seconds and
      # changes nothing: the code has no `if` or loop on tensors.
      self._function = tf.function(self._run, autograph=False)
    elif self.graph is not None:
      self.feeds = [
        tf1.placeholder(spec.fed_dtype, spec.fed) for spec in self.specs
      ]
      self.train_op = self._run(self.feeds)
      self.session = tf1.Session(config=self._config)
      self.session.run(tf1.global_variables_initializer())

  def __enter__(self) -> Trainer:
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._stack.close()
    if self.graph is not None:
      self.session.close()

  def _run(self, fed: list[tf.Tensor]) -> Any:
    if self._strategy is None:
      return self._build(fed)

    def build() -> Any:
      context = tf.distribute.get_replica_context()
      own = tf.equal(context.replica_id_in_sync_group, self._replica)
      step = self._build([tf.where(own, g, tf.ones_like(g)) for g in fed])
      return None if self.graph is None else step

    steps = self._strategy.run(build)
    return self._strategy.experimental_local_results(steps)

  def _build(self, fed: list[tf.Tensor]) -> Any:
    if self._apply_only:
      grads = [
        {
          "none": None,
          "sparse": tf.IndexedSlices(
            g, tf.zeros([2], tf.int64), tf.constant(spec.shape, tf.int64)
          ),
        }.get(spec.kind, tf.cast(g, v.dtype.base_dtype))
        for spec, g, v in zip(self.specs, fed, self.variables)
      ]
      step = self.opt.apply_gradients(
        zip(grads, self.variables), global_step=self.global_step
      )
    else:

      def loss() -> tf.Tensor:
        terms = []
        for spec, g, v in zip(self.specs, fed, self.variables):
          if spec.kind == "none":
            continue
          if spec.kind == "sparse":
            product = tf.gather(v, [0, 0]) * g
          elif spec.kind == "float16":
            product = tf.cast(v, tf.float16) * g
          else:
            product = v * g
          terms.append(tf.cast(tf.reduce_sum(product), tf.float32))
        return tf.add_n(terms)

      step = self.opt.minimize(
        loss if self.graph is None else loss(),
        var_list=self.variables,
        global_step=self.global_step,
      )
    return None if self.mode == "function" else step

  def step(self, *grads: Any) -> None:
    """Runs a step with a gradient for each variable."""
    grads = [
      np.broadcast_to(np.asarray(g, spec.fed_dtype), spec.fed)
      for g, spec in zip(grads, self.specs)
    ]
    if self.graph is not None:
      self.session.run(self.train_op, dict(zip(self.feeds, grads)))
    elif self.mode == "function":
      self._function([tf.constant(g) for g in grads])
    else:
      self._run([tf.constant(g) for g in grads])

  def save(self, path: Any) -> str:
    """Writes an object-based checkpoint; returns its path."""
    with self.graph.as_default() if self.graph else contextlib.nullcontext():
      return self._checkpoint().write(str(path), session=self.session)

  def restore(self, path: str) -> None:
    """Restores an object-based checkpoint."""
    status = self._checkpoint().restore(path)
    if self.session is not None:
      status.initialize_or_restore(self.session)

  def _checkpoint(self) -> tf1.train.Checkpoint:
    variables = {f"v{i}": v for i, v in enumerate(self.variables)}
    return tf1.train.Checkpoint(
      opt=self.opt, step=self.global_step, **variables
    )

  def value(self, tensor: Any) -> np.ndarray:
    """Returns the current value of a tensor or variable."""
    if self.graph is not None:
      return self.session.run(tensor)
    return np.asarray(tf.convert_to_tensor(tensor))

  @property
  def loss_scale(self) -> float:
    if self.graph is None:
      return float(self.value(self.opt._loss_scale()))
    if self._read_scale is None:  # A new op would cost a pass of Grappler.
      self._read_scale = self.opt._loss_scale()
    return float(self.session.run(self._read_scale))

  @property
  def good_steps(self) -> int:
    return int(self.value(self.opt._loss_scale._num_good_steps))

  def state(self) -> dict[str, np.ndarray]:
    """Returns the values of all variables: trained, slots, step, loss scale.

    A key is the variable's name, but 'variable/slot' for a slot, because the
    name of an eager slot has a number that depends on earlier tests. In graphs,
    the first call decides which variables all calls return.
    """
    if self.graph is None:
      variables = self._state_variables()
      return {name: self.value(v) for name, v in variables.items()}
    if self._graph_state is None:
      with self.graph.as_default():
        self._graph_state = self._state_variables()
    # A new set of fetches would cost another pass of Grappler.
    return self.session.run(self._graph_state)

  def _state_variables(self) -> dict[str, tf.Variable]:
    """Returns the variables of `state` by its keys."""
    inner = self.opt._optimizer
    slots = {
      f"{v.name[:-2]}/{name}": inner.get_slot(v, name)
      for name in inner.get_slot_names()
      for v in self.variables
      if inner.get_slot(v, name) is not None
    }
    others = [*self.variables, self.global_step]
    for v in self.opt.variables():
      if not any(v is slot for slot in slots.values()):
        others.append(v)
    return {v.name[:-2]: v for v in others} | slots


def assert_same_state(
  state: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> None:
  """Asserts that two states are the same, bit for bit."""
  assert sorted(state) == sorted(expected)
  for name, value in state.items():
    other = expected[name]
    assert value.dtype == other.dtype, name
    assert value.tobytes() == other.tobytes(), (name, value, other)
