# SPDX-License-Identifier: Apache-2.0
"""The program of a rank: horovodrun -np 2 python horovod_worker.py TASK FOLDER.

Each rank checks what it trained. All gradients are multiples of 1/8 below 8,
and loss scales are powers of 2, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import growth_backoff_oracle
import helpers
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
import trainers

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import distributed
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_ORDERS = ("inside", "outside")  # Where the loss scale is.
_INF = float("inf")
_SCALES: dict[str, Callable[[float], Any]] = {
  "dynamic": lambda scale: tfl.DynamicLossScale(scale, 2),
  "growth": lambda scale: policies.GrowthBackoff(scale, growth_interval=2),
  "contrib": lambda scale: contrib.ExponentialUpdateLossScaleManager(
    scale, 2, 1, 2, 0.5
  ),
}


def make_optimizer(order: str, loss_scale: Any, **more: Any) -> Any:
  """Returns an optimizer of Horovod around SGD, and a loss scale."""
  wrap: Any = tfl.MixedPrecisionLossScaleOptimizer
  if isinstance(loss_scale, contrib.LossScaleManager):
    wrap = functools.partial(contrib.LossScaleOptimizer, sparse="keep")
  sgd = tf1.train.GradientDescentOptimizer(1.0)
  if order == "inside":
    return hvd.DistributedOptimizer(wrap(sgd, loss_scale), **more)
  return wrap(hvd.DistributedOptimizer(sgd, **more), loss_scale)


class Program(trainers.Trainer):
  """A program of one rank, which goes on from the first rank's values."""

  def __init__(self, mode: str, make: Callable[[], Any]) -> None:
    specs = trainers.Spec(), trainers.Spec((3,), kind="sparse")
    super().__init__(mode, make, specs)
    scale = getattr(self.opt, "loss_scale", None)
    if scale is None:  # Horovod's optimizer is outside.
      scale = self.opt._optimizer.loss_scale
    moves = [v.assign_add(v * hvd.rank()) for v in self.variables]
    if self.session is None:
      self._read_own_scale = scale
      variables = [*self.variables, *self.opt.variables()]
      hvd.broadcast_variables(variables, root_rank=0)
    else:
      tensor = scale()
      self._read_own_scale = lambda: tensor
      self.session.run(moves)
      hook = hvd.BroadcastGlobalVariablesHook(0)
      hook.begin()
      hook.after_create_session(self.session, None)

  def run(self, grads: np.ndarray) -> list[Any]:
    """Takes a step; returns the variables and the loss scale."""
    self.step(*grads)
    tensors = *self.variables, self._read_own_scale()
    return [self.value(x) for x in tensors]


def check_states(mode: str, order: str, scale: str, window: int = 1) -> None:
  """Trains by a random schedule, and compares with NumPy after each step."""
  name = f"{mode}, {order}, {scale}, {window}"
  size, rank = hvd.size(), hvd.rank()
  rng = np.random.default_rng(3)  # The same on all ranks.

  def make() -> Any:
    # Before the broadcast, each rank has a loss scale of its own.
    opt = make_optimizer(order, _SCALES[scale](2.0 ** (3 + rank)))
    return tfl.accumulate(opt, window) if window > 1 else opt

  dense, sparse = np.ones(2, np.float32), np.ones(3, np.float32)
  rule = growth_backoff_oracle.Rule(8.0, growth_interval=2)
  state, applied = rule.start(), 0
  with Program(mode, make) as program:
    for _ in range(20):
      grads = rng.integers(-63, 64, [window, size, 2]) / np.float32(8)
      if rng.random() < 0.4:
        bad = rng.choice([_INF, -_INF, np.nan])
        grads[rng.integers(window), rng.integers(size), rng.integers(2)] = bad
      for row in grads:
        *found, found_scale = program.run(row[rank])
      finite = bool(np.isfinite(grads).all())
      state = rule.step(state, finite)
      if finite:
        mean = grads.mean(axis=(0, 1), dtype=np.float32)
        dense = dense - mean[0]
        sparse = sparse - mean[1] * np.float32([2, 0, 0])
        applied += 1
      np.testing.assert_array_equal(found[0], dense, name)
      np.testing.assert_array_equal(found[1], sparse, name)
      assert found_scale == state.current_loss_scale, (name, found_scale, state)
  assert 5 < applied < 19


def run_states() -> None:
  """Trains in all modes, with the loss scale inside and outside."""
  for mode in helpers.MODES:
    for order in _ORDERS:
      check_states(mode, order, "dynamic")
    check_states(mode, "outside", "dynamic", window=4)
  for scale in ("growth", "contrib"):
    for order in _ORDERS:
      check_states("graph_v1", order, scale)


def train_graph(
  order: str,
  scale: Any,
  factors: list[list[float]],
  clip: bool = False,
  agrees: bool = False,
  **more: Any,
) -> list[list[float]]:
  """Trains one variable in a graph, by gradients for each rank and step.

  Returns:
    For each step: the variable, the loss scale and the global step.
  """
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=0.0, use_resource=True)
    x = tf1.placeholder(tf.float32, [])
    loss_scale = scale()
    opt = make_optimizer(order, loss_scale, **more)
    if agrees:
      distributed.agree(loss_scale)
    global_step = tf1.train.get_or_create_global_step()
    pairs = opt.compute_gradients(v * x, [v])
    if clip:
      pairs = [(tf.clip_by_norm(grad, 100.0), var) for grad, var in pairs]
    op = opt.apply_gradients(pairs, global_step=global_step)
    rows = []
    with tf1.Session() as session:
      session.run(
        [tf1.global_variables_initializer(), tf1.local_variables_initializer()]
      )
      for value in factors[hvd.rank()]:
        session.run(op, {x: value})
        row = session.run([v, loss_scale(), global_step])
        rows.append([x.item() for x in row])
  return rows


def run_options() -> None:
  """Trains with options of Horovod that bear on loss scaling."""
  dynamic = functools.partial(tfl.DynamicLossScale, 8.0, 2)
  bad = [[1.0, 1.0, 1.0, 1.0], [3.0, _INF, 3.0, 3.0]]
  half = {"compression": hvd.Compression.fp16}
  large = functools.partial(tfl.DynamicLossScale, 2.0**15, 100)
  for order in _ORDERS:
    for factor, more in (
      (1, {"gradient_predivide_factor": 2.0}),
      (1, {"groups": 1}),
      (1, half),
      (2, {"op": hvd.Sum}),
    ):
      rows = train_graph(order, dynamic, bad, **more)
      assert rows == [
        [-2 * factor, 8, 1],
        [-2 * factor, 4, 1],
        [-4 * factor, 4, 2],
        [-6 * factor, 8, 3],
      ], (order, more)
    # Small gradients are lost unless Horovod's optimizer is the inner one.
    small = train_graph(order, large, [[2.0**-26] * 2] * 2, **half)
    assert small[-1][0] == (0 if order == "inside" else -(2**-25))
  # The scale falls until compressed gradients fit.
  rows = train_graph("outside", large, [[8.0] * 6] * 2, **half)
  assert [row[1] for row in rows] == [2**i for i in (14, 13, 12, 11, 11, 11)]
  assert [row[0] for row in rows] == [0, 0, 0, 0, -8, -16]
  check_passes()
  check_agreement()


def check_passes() -> None:
  """Checks passes of Horovod, whose gradients add up, and what cannot work."""
  passes = {"backward_passes_per_step": 2}
  dynamic = functools.partial(tfl.DynamicLossScale, 8.0, 2)
  factors = [[1.0, 2.0, 1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 3.0, _INF, 7.0, 8.0]]
  for clip in (False, True):  # An infinity skips both passes.
    rows = train_graph("inside", dynamic, factors, clip, **passes)
    assert rows == [
      [0, 8, 1],
      [-5, 8, 2],
      [-5, 8, 3],
      [-5, 4, 3],
      [-5, 4, 4],
      [-18, 4, 5],
    ]
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=0.0, use_resource=True)
    opt = make_optimizer("inside", "dynamic", **passes)
    pairs = zip(*zip(*opt.compute_gradients(v * 1.0, [v])))
    try:
      opt.apply_gradients(pairs)
    except ValueError as error:
      assert "list(zip(gradients, variables))" in str(error)
    else:
      raise AssertionError("pairs that are read already must be refused")


def check_agreement() -> None:
  """Trains with gradients that each rank has for itself."""
  dynamic = functools.partial(tfl.DynamicLossScale, 8.0, 2)
  bad = [[1.0, 1.0, 1.0], [1.0, _INF, 1.0]]
  for order in _ORDERS:
    rows = train_graph(order, dynamic, bad, agrees=True, op=hvd.Adasum)
    assert rows == [[-1, 8, 1], [-1, 4, 1], [-2, 4, 2]]
    train_local(order)
  for mode in helpers.MODES:
    for agrees in (True, False):
      train_alone(mode, agrees)


def train_local(order: str) -> None:
  """Trains a variable that each rank has for itself, eagerly."""
  loss_scale = tfl.DynamicLossScale(8.0, 2)
  opt = make_optimizer(order, loss_scale, scale_local_gradients=False)
  distributed.agree(loss_scale)
  local, shared, x = tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0.0)
  own = 1.0 + hvd.rank()
  (opt if order == "inside" else opt._optimizer).register_local_var(local)
  rows = []
  for step in range(3):
    x.assign(_INF if (hvd.rank(), step) == (1, 1) else own)
    opt.minimize(lambda: local * x + shared * own, var_list=[local, shared])
    rows.append([float(local), float(shared), float(loss_scale())])
  assert rows == [[-own, -1.5, 8], [-own, -1.5, 4], [-2 * own, -3, 4]]


def train_alone(mode: str, agrees: bool) -> None:
  """Trains by the rank's gradients; the second rank has an infinity."""

  def make() -> Any:
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(1.0), tfl.DynamicLossScale(8.0, 2)
    )
    return distributed.agree(opt) if agrees else opt

  rows = []
  with Program(mode, make) as program:
    for value in (1.0, _INF if hvd.rank() == 1 else 1.0, 1.0):
      dense, _, scale = program.run(np.full(2, value, np.float32))
      rows.append([dense[0].item(), scale.item()])
  if agrees or hvd.rank() == 1:
    assert rows == [[0, 8], [0, 4], [-1, 4]]
  else:
    assert rows == [[0, 8], [-1, 16], [-2, 16]]


def main() -> None:
  """Runs a task."""
  task, folder = sys.argv[1], pathlib.Path(sys.argv[2])
  hvd.init()
  assert hvd.size() == 2
  (folder / f"{hvd.rank()}.pid").write_text(str(os.getpid()), "utf-8")
  globals()[task]()
  print(f"done {task} of rank {hvd.rank()}", flush=True)
  hvd.shutdown()


if __name__ == "__main__":
  main()
