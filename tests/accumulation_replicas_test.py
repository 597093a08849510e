# SPDX-License-Identifier: Apache-2.0
"""Tests accumulation on replicas against one large batch, in random set-ups."""

import contextlib
import math
import os
import tempfile

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_SETUPS = int(os.environ.get("ACCUMULATION_SETUPS", "6"))
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
    rng = np.random.default_rng(seed)
    choose = lambda items: items[rng.integers(len(items))]  # noqa: E731
    self.mode = choose(helpers.MODES)
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
      if rng.random() < bad_rate:
        bad = choose([math.inf, -math.inf, math.nan])
        factors.flat[rng.integers(factors.size)] = bad
      self.batches.append((x, rows, factors))
    self.resumed = int(rng.integers(count)) if rng.random() < 0.5 else None

  def __repr__(self):
    return str({k: v for k, v in vars(self).items() if k != "batches"})


class Model:
  """Three variables with dense gradients, or with sparse ones too."""

  def __init__(self, setup):
    rng = np.random.default_rng(7)
    self._is_sparse = setup.is_sparse
    self.matrix, self.bias, self.table = self.variables = [
      tf1.Variable(
        rng.standard_normal(shape),
        dtype=setup.dtype,
        name=name,
        use_resource=True,
      )
      for shape, name in (
        ([_WIDTH, 2], "kernel"),
        ([2], "bias"),
        ([_ROWS, 2], "kernel"),
      )
    ]

  def loss(self, x, rows, factors):
    """Returns the mean of the examples' losses."""
    table = self.table if self._is_sparse else tf.identity(self.table)
    out = tf.tanh(tf.matmul(x, tf.identity(self.matrix)) + self.bias)
    each = tf.reduce_sum(tf.square(out - tf.gather(table, rows)), axis=1)
    return tf.reduce_mean(each * factors)


class Program:
  """Training on two replicas."""

  def __init__(self, setup, strategy):
    self._mode, self._strategy = setup.mode, strategy
    self.session = None
    with contextlib.ExitStack() as stack:
      graph = stack.enter_context(helpers.mode_scope(setup.mode))
      stack.enter_context(strategy.scope())
      self._build(setup, graph)
      self.close = stack.pop_all().close

  def _build(self, setup, graph):
    self._model = Model(setup)
    self._step = tf1.Variable(
      0,
      dtype=tf.int64,
      use_resource=True,
      aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    inner = helpers.INNER[setup.inner]()
    scale = _SCALES[setup.scale][0]()
    wrap = tfl.MixedPrecisionLossScaleOptimizer
    if setup.scale == "contrib":
      wrap = contrib.LossScaleOptimizer
    self._opt = tfl.accumulate(wrap(inner, scale), setup.steps, setup.mean)
    dtypes = [setup.dtype, tf.int64, setup.dtype]
    if graph is None:
      run = self._run
      if setup.mode == "function":
        run = tf.function(run, autograph=False)
      self.run = lambda batch: run(*map(tf.constant, batch, dtypes))
    else:
      feeds = [
        tf1.placeholder(dtype, part.shape)
        for dtype, part in zip(dtypes, setup.batches[0])
      ]
      ops = self._strategy.experimental_local_results(self._run(*feeds))
      self.session = tf1.Session()
      self.session.run(tf1.global_variables_initializer())
      self.run = lambda batch: self.session.run(ops, dict(zip(feeds, batch)))
    tensors = [v for x in self._model.variables for v in x.values]
    self._tensors = [*tensors, self._step]
    self._checkpoint = tf1.train.Checkpoint(
      opt=self._opt, step=self._step, variables=self._model.variables
    )

  def _run(self, *batch):
    def replica_fn():
      context = tf.distribute.get_replica_context()
      own = [a[context.replica_id_in_sync_group] for a in batch]
      op = self._opt.minimize(
        lambda: self._model.loss(*own), self._step, self._model.variables
      )
      return op if self._mode in helpers.GRAPH_MODES else None

    return self._strategy.run(replica_fn)

  def save(self, path):
    """Writes a checkpoint; returns its path."""
    return self._checkpoint.write(path, session=self.session)

  def restore(self, path):
    """Restores a checkpoint."""
    status = self._checkpoint.restore(path)
    if self.session:
      status.initialize_or_restore(self.session)

  def values(self):
    """Returns the variables on each replica, the step and the loss scale."""
    tensors = [*self._tensors, self._opt.loss_scale()]
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

  def run(self, batches):
    """Trains on a window's micro-batches."""
    setup, variables = self._setup, self.model.variables
    x, rows, factors = (
      np.concatenate([part for parts in each for part in parts])
      for each in zip(*batches)
    )
    is_finite = np.isfinite(factors).all()
    if self._period:
      self._good = self._good + 1 if is_finite else 0
      if not is_finite:
        self.scale = max(self.scale / 2, 1.0)
      elif self._good == self._period:
        self.scale, self._good = self.scale * 2, 0
    if not is_finite:
      return
    self.step += 1
    # The gradients of replicas add up.
    factor = _REPLICAS * (1 if setup.mean else setup.steps)
    x, factors = (tf.constant(a, setup.dtype) for a in (x, factors))
    with tf.GradientTape() as tape:
      loss = factor * self.model.loss(x, tf.constant(rows), factors)
    grads = tape.gradient(loss, variables)
    # The sums of `accumulate` are dense.
    pairs = list(zip(map(tf.convert_to_tensor, grads), variables))
    self._opt.apply_gradients(pairs)


def train(setup):
  """Trains on replicas; yields what `Program.values` returns per window."""
  strategy = tf.distribute.MirroredStrategy(
    [f"cpu:{i}" for i in range(_REPLICAS)], _REDUCTIONS[setup.reduction]()
  )
  with tempfile.TemporaryDirectory() as folder:
    program = Program(setup, strategy)
    for i, batch in enumerate(setup.batches):
      if i == setup.resumed:
        path = program.save(f"{folder}/ckpt")
        program.close()
        program = Program(setup, strategy)
        program.restore(path)
      program.run(batch)
      if (i + 1) % setup.steps == 0:
        yield program.values()
    program.close()


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


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(_SETUPS))
def test_as_one_large_batch(seed):
  """Runs each set-up in a process of its own.

  All strategies of a process share the keys of collective ops.
  """
  code = helpers.import_line(__file__) + f"test.check({seed})"
  assert f"done: {seed}:" in helpers.run_forked("-c", code, timeout=120)


if __name__ == "__main__":
  helpers.main()
