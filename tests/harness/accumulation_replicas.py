# SPDX-License-Identifier: Apache-2.0
"""Accumulates on two replicas, and compares with one large batch.

Usage: accumulation_replicas.py SEED. The seed draws the set-up: a process has
one strategy alone, since all strategies share the keys of collective ops.
"""

import contextlib
import math
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import helpers
import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_REPLICAS, _EXAMPLES, _WIDTH, _ROWS = 2, 3, 2, 4

_REDUCTIONS = {
  "default": lambda: None,
  "one device": tf.distribute.ReductionToOneDevice,
  "hierarchical": tf.distribute.HierarchicalCopyAllReduce,
}
# Loss scales, each with its period; None for one that never changes.
_SCALES = {
  "dynamic": (lambda: tfl.DynamicLossScale(8, 2), 2),
  "policy": (lambda: policies.GrowthBackoff(8, growth_interval=3), 3),
  "contrib": (
    lambda: contrib.ExponentialUpdateLossScaleManager(8, 2, 1, 2, 0.5),
    2,
  ),
  "fixed": (lambda: tfl.FixedLossScale(8), None),
  "one": (lambda: tfl.FixedLossScale(1), None),
}


class Setup:
  """What a seed draws.

  Attributes:
    batches: For each micro-batch the examples, the rows that they look up, and
      the factors of their losses, each by replica.
    resumed: Before which micro-batch a new program goes on from a checkpoint;
      None for never.
  """

  def __init__(self, seed):
    rng = self.rng = np.random.default_rng(seed)
    choose = lambda items: items[rng.integers(len(items))]  # noqa: E731
    self.mode = choose(helpers.MODES)
    self.drop = choose(["window", "micro_batch"])
    self.steps = int(rng.integers(1, 6))
    self.mean = bool(rng.random() < 0.7)
    self.inner = choose(sorted(helpers.INNER))
    self.scale = choose(sorted(_SCALES))
    self.reduction = choose(sorted(_REDUCTIONS))
    self.dtype = choose([tf.float32, tf.float64])
    self.is_sparse = bool(rng.random() < 0.5)
    count = self.steps * int(rng.integers(3, 7))
    bad_rate = choose([0.0, 0.1, 0.4])
    self.batches = []
    for _ in range(count):
      x = rng.standard_normal([_REPLICAS, _EXAMPLES, _WIDTH])
      rows = rng.integers(0, _ROWS, [_REPLICAS, _EXAMPLES])
      factors = np.ones([_REPLICAS, _EXAMPLES])
      for replica in range(_REPLICAS):
        if rng.random() < bad_rate:
          kind = choose([math.inf, -math.inf, math.nan])
          factors[replica, rng.integers(_EXAMPLES)] = kind
      self.batches.append((x, rows, factors))
    self.resumed = None
    if self.mode in ("eager", "function") and rng.random() < 0.5:
      self.resumed = int(rng.integers(count))

  def __repr__(self):
    shown = {k: v for k, v in vars(self).items() if k not in ("rng", "batches")}
    return f"{shown}"


class Model:
  """Three variables with dense gradients, or with sparse ones too."""

  def __init__(self, setup):
    rng = np.random.default_rng(7)
    self._is_sparse = setup.is_sparse
    make = lambda shape, name: tf1.Variable(  # noqa: E731
      rng.standard_normal(shape),
      dtype=setup.dtype,
      name=name,
      use_resource=True,
    )
    self.matrix = make([_WIDTH, 2], "kernel")
    self.bias = make([2], "bias")
    self.table = make([_ROWS, 2], "kernel")
    self.variables = [self.matrix, self.bias, self.table]

  def loss(self, x, rows, factors):
    """Returns the mean of the examples' losses."""
    read = tf.identity(self.table)
    looked_up = tf.gather(self.table if self._is_sparse else read, rows)
    out = tf.tanh(tf.matmul(x, tf.identity(self.matrix)) + self.bias)
    each = tf.reduce_sum(tf.square(out - looked_up), axis=1)
    return tf.reduce_mean(each * factors)


def wrap(setup):
  """Returns the optimizer that accumulates."""
  inner = helpers.INNER[setup.inner]()
  scale = _SCALES[setup.scale][0]()
  if setup.scale == "contrib":
    scaled = contrib.LossScaleOptimizer(inner, scale)
  else:
    scaled = tfl.MixedPrecisionLossScaleOptimizer(inner, scale)
  return tfl.accumulate(scaled, setup.steps, setup.drop, setup.mean)


class Program:
  """Training on two replicas."""

  def __init__(self, setup, stack, strategy=None):
    self._mode = setup.mode
    devices = [f"cpu:{i}" for i in range(_REPLICAS)]
    self.strategy = strategy or tf.distribute.MirroredStrategy(
      devices, _REDUCTIONS[setup.reduction]()
    )
    self.graph = stack.enter_context(helpers.mode_scope(setup.mode))
    if strategy is None:
      stack.enter_context(self.strategy.scope())
    self.model = Model(setup)
    self.step = tf1.Variable(
      0,
      dtype=tf.int64,
      use_resource=True,
      aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    self.opt = wrap(setup)
    shapes = [a.shape for a in setup.batches[0]]
    dtypes = [setup.dtype, tf.int64, setup.dtype]
    self.session = None
    if self.graph is None:
      run = self._run
      if setup.mode == "function":
        run = tf.function(run, autograph=False)
      self.run = lambda batch: run(
        *(tf.constant(a, dtype) for a, dtype in zip(batch, dtypes))
      )
    else:
      feeds = [tf1.placeholder(d, s) for d, s in zip(dtypes, shapes)]
      ops = self.strategy.experimental_local_results(self._run(*feeds))
      self.session = stack.enter_context(tf1.Session())
      self.session.run(tf1.global_variables_initializer())
      self.run = lambda batch: self.session.run(ops, dict(zip(feeds, batch)))
    self.checkpoint = tf1.train.Checkpoint(
      opt=self.opt, step=self.step, variables=self.model.variables
    )

  def _run(self, *batch):
    def replica_fn():
      context = tf.distribute.get_replica_context()
      own = [a[context.replica_id_in_sync_group] for a in batch]
      op = self.opt.minimize(
        lambda: self.model.loss(*own), self.step, self.model.variables
      )
      return op if self._mode in helpers.GRAPH_MODES else None

    return self.strategy.run(replica_fn)

  def values(self):
    """Returns the variables on each replica, the step and the loss scale."""
    tensors = [v for x in self.model.variables for v in x.values]
    tensors += [self.step, self.opt.loss_scale()]
    if self.session:
      return self.session.run(tensors)
    return [tf.convert_to_tensor(x).numpy() for x in tensors]


class Large:
  """Training without a strategy, whose batches are whole windows."""

  def __init__(self, setup):
    self._setup = setup
    self.model = Model(setup)
    self._opt = helpers.INNER[setup.inner]()
    self._period = _SCALES[setup.scale][1]
    self.step, self.scale, self._good = 0, 8.0, 0
    if setup.scale == "one":
      self.scale = 1.0

  def run(self, batches):
    """Trains on a window's micro-batches."""
    setup = self._setup
    parts = [
      [a[replica] for a in batch]
      for batch in batches
      for replica in range(_REPLICAS)
    ]
    kept = [part for part in parts if np.isfinite(part[2]).all()]
    is_complete = len(kept) == len(parts)
    if self._period:
      self._good += 1
      if not is_complete:
        self.scale, self._good = max(self.scale / 2, 1.0), 0
      elif self._good == self._period:
        self.scale, self._good = self.scale * 2, 0
    if not kept or not (is_complete or setup.drop == "micro_batch"):
      return
    self.step += 1
    # The gradients of replicas add up.
    factor = _REPLICAS if setup.mean else len(kept)
    x, rows, factors = (np.concatenate(a) for a in zip(*kept))
    x, factors = (tf.constant(a, setup.dtype) for a in (x, factors))
    variables = self.model.variables
    with tf.GradientTape() as tape:
      loss = factor * self.model.loss(x, tf.constant(rows), factors)
    grads = tape.gradient(loss, variables)
    # The sums of `accumulate` are dense.
    self._opt.apply_gradients(
      [(tf.convert_to_tensor(g), v) for g, v in zip(grads, variables)]
    )


def train(setup):
  """Trains on replicas; yields what `Program.values` returns per window."""
  with contextlib.ExitStack() as stack:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    program = Program(setup, stack)
    for i, batch in enumerate(setup.batches):
      if i == setup.resumed:
        path = program.checkpoint.write(f"{folder}/ckpt")
        program = Program(setup, stack, program.strategy)
        program.checkpoint.restore(path)
      program.run(batch)
      if (i + 1) % setup.steps == 0:
        yield program.values()


def check(seed):
  """Trains both ways, and compares after each window."""
  setup = Setup(seed)
  # Errors of rounding grow in optimizers that divide by small numbers.
  tolerance = 1e-6 if setup.dtype == tf.float64 else 5e-3
  states = list(train(setup))
  large = Large(setup)
  for i, (*values, step, scale) in enumerate(states):
    large.run(setup.batches[i * setup.steps : (i + 1) * setup.steps])
    where = f"seed {seed}, window {i}: {setup}"
    assert (step, scale) == (large.step, large.scale), where
    for j, variable in enumerate(large.model.variables):
      first, second = values[2 * j : 2 * j + 2]
      assert first.tobytes() == second.tobytes(), where
      np.testing.assert_allclose(
        first, variable.numpy(), tolerance, tolerance, err_msg=where
      )
  print(f"done: {seed}: {large.step} of {len(states)} applied: {setup}")


if __name__ == "__main__":
  check(int(sys.argv[1]))
