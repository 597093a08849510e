# SPDX-License-Identifier: Apache-2.0
"""Tries mixed precision on this machine's GPU, in about ten minutes.

  python tools/gpu.py [--steps=300] [--width=2048]

Each check prints a line. The exit status is 0 if all checks hold. Without a GPU
the same checks run on the CPU, which shows that the package works, but nothing
about GPUs.
"""

from collections.abc import Callable
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

from absl import app
from absl import flags
import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1
FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 300, "How many steps each check trains.", 100)
flags.DEFINE_integer("width", 2048, "Rows and columns of each matrix.", 8)

_LAYERS = 4
_BATCH = 64
_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PERIOD = 20  # Good steps after which the scale grows.
# float16's largest number is 65504, so the first steps overflow.
_SCALE = 2.0**24


class Failure(Exception):
  """A check that does not hold; the message says what was seen."""


def _data() -> tuple[np.ndarray, np.ndarray]:
  """Returns inputs and targets of a task that a small network learns."""
  rng = np.random.default_rng(0)
  x = rng.standard_normal([_BATCH, FLAGS.width]).astype(np.float32)
  return x, np.tanh(x[:, :1])


def _make_weights(make: Callable[..., Any]) -> list[Any]:
  rng = np.random.default_rng(1)
  width = FLAGS.width
  shapes = [[width, width]] * _LAYERS + [[width, 1]]
  return [
    make((rng.standard_normal(s) / width**0.5).astype(np.float32))
    for s in shapes
  ]


def _loss(x: Any, y: Any, weights: list[Any], dtype: tf.DType) -> tf.Tensor:
  x = tf.cast(x, dtype)
  for weight in weights[:-1]:
    x = tf.nn.relu(tf.matmul(x, tf.cast(weight, dtype)))
  out = tf.cast(tf.matmul(x, tf.cast(weights[-1], dtype)), tf.float32)
  return tf.reduce_mean(tf.square(out - y))


def _scale() -> tfl.DynamicLossScale:
  return tfl.DynamicLossScale(_SCALE, increment_period=_PERIOD)


def _check(losses: list[float], scales: list[float]) -> str:
  """Raises a Failure unless the loss fell and the scale went both ways."""
  first, last = losses[0], float(np.mean(losses[-10:]))
  steps = np.diff(np.log2(scales))
  seen = f"loss {first:.3f} -> {last:.3f}, scale {_SCALE:g} -> {scales[-1]:g}"
  if not (np.isfinite(last) and last < 0.8 * first):
    raise Failure(f"the loss did not fall: {seen}")
  if not (steps.min() < 0 < steps.max()):
    raise Failure(f"the scale did not fall and grow: {seen}")
  return seen


def _train_session(dtype: tf.DType = tf.float16) -> tuple[Any, Any, float]:
  """Returns the losses, the loss scales and the seconds of a step."""
  x, y = _data()
  with tf.Graph().as_default(), tf1.Session() as session:
    weights = _make_weights(lambda value: tf1.Variable(value))
    fed_x, fed_y = tf.constant(x), tf.constant(y)
    loss = _loss(fed_x, fed_y, weights, dtype)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.MomentumOptimizer(0.003, 0.9), _scale()
    )
    train, scale = opt.minimize(loss), opt.loss_scale()
    session.run(tf1.global_variables_initializer())
    losses, scales = [], [_SCALE]
    for _ in range(FLAGS.steps):
      losses.append(session.run([loss, train])[0])
      scales.append(session.run(scale))
    times = []
    for _ in range(30):
      start = time.perf_counter()
      session.run(train)
      times.append(time.perf_counter() - start)
  return losses, scales, float(np.median(times))


def check_session() -> str:
  """A session of TensorFlow 1, computing in float16."""
  losses, scales, seconds = _train_session()
  whole = _train_session(tf.float32)[2]
  return (
    f"{_check(losses, scales)}; a step takes {1e3 * seconds:.2f} ms, "
    f"{seconds / whole:.2f} of float32's"
  )


def check_function() -> str:
  """A `tf.function` with a gradient tape."""
  x, y = map(tf.constant, _data())
  weights = _make_weights(tf.Variable)
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.MomentumOptimizer(0.003, 0.9), _scale()
  )

  @tf.function
  def step() -> tuple[tf.Tensor, tf.Tensor]:
    loss = _loss(x, y, weights, tf.float16)
    opt.minimize(loss, var_list=weights)
    return loss, opt.loss_scale()

  seen = [step() for _ in range(FLAGS.steps)]
  losses = [float(loss) for loss, _ in seen]
  return _check(losses, [_SCALE, *(float(scale) for _, scale in seen)])


def check_keras() -> str:
  """Keras 2 with the policy mixed_float16."""
  keras = tf.keras
  policy = tfl.keras.Policy("mixed_float16", _scale())
  model = keras.Sequential(
    [
      keras.layers.Dense(FLAGS.width, "relu", dtype=policy),
      keras.layers.Dense(1, dtype="float32"),
    ]
  )
  opt = tfl.keras.LossScaleOptimizer(
    keras.optimizers.legacy.SGD(0.003, 0.9), _scale()
  )
  model.compile(opt, "mse")
  scales = [_SCALE]
  after = keras.callbacks.LambdaCallback(
    on_batch_end=lambda batch, logs: scales.append(float(opt.loss_scale))
  )
  x, y = _data()
  run = model.fit(
    x, y, _BATCH, epochs=FLAGS.steps, verbose=0, callbacks=[after]
  )
  return _check(run.history["loss"], scales)


def check_rewrite() -> str:
  """The graph rewrite: Cast ops that it added to a float32 program."""
  counts = []
  for rewrite in (False, True):
    with tf.Graph().as_default():
      x, y = map(tf.constant, _data())
      weights = _make_weights(lambda value: tf1.Variable(value))
      opt = tf1.train.MomentumOptimizer(0.003, 0.9)
      if rewrite:
        opt = tfl.enable_mixed_precision_graph_rewrite(opt, _scale())
      train = opt.minimize(_loss(x, y, weights, tf.float32))
      with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        counts.append(count_casts(session, train))
  tfl.disable_mixed_precision_graph_rewrite()
  seen = f"{counts[0]} Cast ops without the rewrite, {counts[1]} with it"
  if tf.config.list_physical_devices("GPU") and counts[1] <= counts[0]:
    raise Failure(f"the rewrite converted nothing: {seen}")
  return seen


def count_casts(session: tf1.Session, fetch: Any) -> int:
  """Returns the number of Cast ops that a session runs for a fetch."""
  options = tf1.RunOptions(output_partition_graphs=True)
  metadata = tf1.RunMetadata()
  session.run(fetch, options=options, run_metadata=metadata)
  return sum(
    node.op == "Cast"
    for graph in metadata.partition_graphs
    for node in graph.node
  )


def check_resume() -> str:
  """A TensorFlow 1.15 program resumes its checkpoint."""
  command = [sys.executable, _ROOT / "examples" / "resume_digits.py"]
  done = subprocess.run(
    command, cwd=_ROOT, capture_output=True, text=True, timeout=1200
  )
  lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
  if done.returncode:
    raise Failure(f"examples/resume_digits.py: {lines[-1] if lines else ''}")
  return lines[-1]


def main(argv: list[str]) -> None:
  del argv
  gpus = tf.config.list_physical_devices("GPU")
  details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
  for each in details:
    major, minor = each.get("compute_capability", ("?", "?"))
    print(f"GPU: {each.get('device_name')}, compute capability {major}.{minor}")
  if not gpus:
    print("No GPU: these checks run on the CPU.")
  print(f"TensorFlow {tf.__version__}")
  failed = 0
  for check in (
    check_session,
    check_function,
    check_keras,
    check_rewrite,
    check_resume,
  ):
    try:
      print(f"ok      {check.__doc__} {check()}", flush=True)
    except Failure as failure:
      failed += 1
      print(f"FAILED  {check.__doc__} {failure}", flush=True)
  sys.exit(bool(failed))


if __name__ == "__main__":
  app.run(main)
