# SPDX-License-Identifier: Apache-2.0
"""Tries and measures mixed precision on this machine, in about ten minutes.

  python tools/gpu.py [--only=checks,steps,models] [--steps=300] [--width=2048]

Prints a table in Markdown. The exit status is 0 if all checks hold. Without a
GPU all of it runs on the CPU, where the graph rewrite computes in float16, too:
that shows that the package works, and how slow the rehearsal is.
"""

from collections.abc import Callable
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # As run --float16-on-cpu.
_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from absl import app  # noqa: E402
from absl import flags  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from benchmarks import models  # noqa: E402
from benchmarks import rivals  # noqa: E402
from benchmarks import shapes  # noqa: E402
from benchmarks import steps  # noqa: E402
import tf_compat_lossscale as tfl  # noqa: E402
from tf_compat_lossscale import graph_rewrite  # noqa: E402

tf1 = tf.compat.v1
FLAGS = flags.FLAGS
_PARTS = ["checks", "steps", "models"]
flags.DEFINE_list("only", _PARTS, "Which parts to run.")
flags.DEFINE_integer("steps", 300, "How many steps each check trains.", 100)
flags.DEFINE_integer("width", 2048, "Rows and columns of each matrix.", 8)
flags.DEFINE_integer("rounds", 40, "How often each step is timed.", 3)
flags.DEFINE_integer("batch", 8, "Examples in a batch of a model.", 1)
flags.DEFINE_integer("image", 96, "Rows and columns of ResNet-50's images.", 32)
flags.DEFINE_bool(
  "scales", False, "Print the loss scales of the rewrite alone."
)

_LAYERS = 4
_BATCH = 64
_PERIOD = 20  # Good steps after which the scale grows.
# float16's largest number is 65504, so the first steps overflow.
_SCALE = 2.0**24


class Failure(Exception):
  """A check that does not hold; the message says what was seen."""


# Training --------------------------------------------------------------------


def _data() -> tuple[np.ndarray, np.ndarray]:
  """Returns inputs and targets of a task that a small network learns."""
  rng = np.random.default_rng(0)
  x = rng.standard_normal([_BATCH, FLAGS.width]).astype(np.float32)
  return x, np.tanh(x[:, :1])


def _make_weights(make: Callable[..., Any]) -> list[Any]:
  rng = np.random.default_rng(1)
  width = FLAGS.width
  sizes = [[width, width]] * _LAYERS + [[width, 1]]
  return [
    make((rng.standard_normal(s) / width**0.5).astype(np.float32))
    for s in sizes
  ]


def _loss(x: Any, y: Any, weights: list[Any], dtype: tf.DType) -> tf.Tensor:
  x = tf.cast(x, dtype)
  for weight in weights[:-1]:
    x = tf.nn.relu(tf.matmul(x, tf.cast(weight, dtype)))
  out = tf.cast(tf.matmul(x, tf.cast(weights[-1], dtype)), tf.float32)
  return tf.reduce_mean(tf.square(out - y))


def _scale() -> tfl.DynamicLossScale:
  return tfl.DynamicLossScale(_SCALE, increment_period=_PERIOD)


def _optimizer() -> Any:
  return tf1.train.MomentumOptimizer(0.003, 0.9)


def _check(losses: list[float], scales: list[float]) -> str:
  """Raises a Failure unless the loss fell and the scale went both ways."""
  first, last = losses[0], float(np.mean(losses[-10:]))
  moves = np.diff(np.log2(scales))
  seen = (
    f"loss {first:.3f} -> {last:.3f}, scale {scales[0]:g} -> {min(scales):g} "
    f"-> {scales[-1]:g}"
  )
  if not (np.isfinite(last) and last < 0.8 * first):
    raise Failure(f"the loss did not fall: {seen}")
  if not (moves.min() < 0 < moves.max()):
    raise Failure(f"the scale did not fall and grow: {seen}")
  return seen


def _train_session(rewrite: bool) -> tuple[list[float], list[float], Any]:
  """Trains in a session, in float16 by the program's casts or by the rewrite.

  Returns:
    The losses, the loss scales, and what was converted.
  """
  x, y = _data()
  with tf.Graph().as_default():
    weights = _make_weights(lambda value: tf1.Variable(value))
    dtype = tf.float32 if rewrite else tf.float16
    loss = _loss(tf.constant(x), tf.constant(y), weights, dtype)
    if rewrite:
      opt = tfl.enable_mixed_precision_graph_rewrite(_optimizer(), _scale())
    else:
      opt = tfl.MixedPrecisionLossScaleOptimizer(_optimizer(), _scale())
    train, scale = opt.minimize(loss), opt.loss_scale()
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      losses, scales = [], [_SCALE]
      for _ in range(FLAGS.steps):
        losses.append(session.run([loss, train])[0])
        scales.append(float(session.run(scale)))
      count = graph_rewrite.count_float16(session, [loss, train])
  if rewrite:
    tfl.disable_mixed_precision_graph_rewrite()
  return losses, scales, count


def check_session() -> str:
  """A session of TensorFlow 1 that computes in float16 by itself"""
  return _check(*_train_session(False)[:2])


def check_function() -> str:
  """A `tf.function` with a gradient tape"""
  x, y = map(tf.constant, _data())
  weights = _make_weights(tf.Variable)
  opt = tfl.MixedPrecisionLossScaleOptimizer(_optimizer(), _scale())

  @tf.function
  def step() -> tuple[tf.Tensor, tf.Tensor]:
    loss = _loss(x, y, weights, tf.float16)
    opt.minimize(loss, var_list=weights)
    return loss, opt.loss_scale()

  seen = [step() for _ in range(FLAGS.steps)]
  losses = [float(loss) for loss, _ in seen]
  return _check(losses, [_SCALE, *(float(scale) for _, scale in seen)])


def check_keras() -> str:
  """Keras 2 with the policy `mixed_float16`"""
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
  """The graph rewrite of a float32 program, beside the CPU in float16"""
  losses, scales, count = _train_session(True)
  seen = f"{count}; {_check(losses, scales)}"
  if count.products[0] < 2 * _LAYERS:
    raise Failure(f"the rewrite converted too little: {seen}")
  command = [sys.executable, __file__, "--scales"]
  command += [f"--{name}={FLAGS[name].value}" for name in ("steps", "width")]
  done = subprocess.run(
    command,
    env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    capture_output=True,
    text=True,
  )
  if done.returncode:
    raise Failure(f"{seen}; on the CPU: {done.stderr[-200:]}")
  other = json.loads(done.stdout.splitlines()[-1])
  parted = [i for i, pair in enumerate(zip(scales, other)) if len({*pair}) > 1]
  return f"{seen}; the CPU's scale " + (
    f"parts at step {parted[0]}" if parted else "is the same at each step"
  )


def check_resume() -> str:
  """A TensorFlow 1.15 program that resumes its checkpoint"""
  command = [sys.executable, _ROOT / "examples" / "resume_digits.py"]
  done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
  lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
  if done.returncode:
    raise Failure(f"examples/resume_digits.py: {lines[-1] if lines else ''}")
  return lines[-1]


# Times -----------------------------------------------------------------------


def _take_turns(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
  """Returns the median seconds of calls, which take turns."""
  times: dict[str, list[float]] = {name: [] for name in calls}
  for call in list(calls.values()) * 3:
    call()
  for _ in range(FLAGS.rounds):
    for name, call in calls.items():
      start = time.perf_counter()
      call()
      times[name].append(time.perf_counter() - start)
  return {name: float(np.median(each)) for name, each in times.items()}


def _count_launches(session: tf1.Session, fetch: Any) -> int:
  """Returns how many kernels a GPU launches, or ops a CPU executes."""
  options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
  metadata = tf1.RunMetadata()
  session.run(fetch, options=options, run_metadata=metadata)
  devices = metadata.step_stats.dev_stats
  streams = [x for x in devices if "stream:all" in x.device]
  return sum(len(x.node_stats) for x in streams or devices)


def time_steps() -> None:
  """Prints a step's time and launches over those of the bare optimizer."""
  print(
    "\n| variables | bare, ms | TensorFlow's own | ours | launches of each |"
  )
  print("|---|---|---|---|---|")
  for name, sizes in shapes.SHAPES.items():
    calls, launches = {}, []
    for rival in rivals.MAIN:
      with tf.Graph().as_default():
        variables = [
          tf1.Variable(tf.zeros(x), use_resource=True) for x in sizes
        ]
        one = tf1.Variable(1.0, trainable=False, use_resource=True)
        opt = rivals.RIVALS[rival](rivals.OPTIMIZERS["momentum"]())
        train = opt.minimize(steps.filled(variables) * one, var_list=variables)
        session = tf1.Session()
        session.run(tf1.global_variables_initializer())
        launches.append(str(_count_launches(session, train)))
        calls[rival] = session.make_callable(train)
    bare, own, ours = _take_turns(calls).values()
    cells = (
      name,
      f"{1e3 * bare:.3g}",
      f"{own / bare:.2f}",
      f"{ours / bare:.2f}",
    )
    print(f"| {' | '.join((*cells, ', '.join(launches)))} |", flush=True)


def time_models() -> None:
  """Prints a step in float16 by the rewrite over one in float32."""
  print("\n| network | float32, ms | float16 over it | converted | launches |")
  print("|---|---|---|---|---|")
  for name, build in models.MODELS.items():
    calls: dict[str, Callable[[], Any]] = {}
    for rewrite in (False, True):
      with tf.Graph().as_default():
        wrap = tfl.MixedPrecisionLossScaleOptimizer
        if rewrite:
          wrap = tfl.enable_mixed_precision_graph_rewrite
        opt = wrap(tf1.train.MomentumOptimizer(1e-6, 0.9), "dynamic")
        train = opt.minimize(build(FLAGS.batch, FLAGS.image))
        session = tf1.Session()
        session.run(tf1.global_variables_initializer())
        calls[str(rewrite)] = session.make_callable(train)
    count = graph_rewrite.count_float16(session, train)
    launches = _count_launches(session, train)
    tfl.disable_mixed_precision_graph_rewrite()
    whole, half = _take_turns(calls).values()
    cells = (name, f"{1e3 * whole:.3g}", f"{half / whole:.2f}", count, launches)
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def describe_machine() -> str:
  """Returns the device, its driver, and TensorFlow's release."""
  words = [f"TensorFlow {tf.__version__}"]
  for gpu in tf.config.list_physical_devices("GPU"):
    details = tf.config.experimental.get_device_details(gpu)
    major, minor = details.get("compute_capability", ("?", "?"))
    words.append(f"{details.get('device_name')}, sm_{major}{minor}")
  if len(words) == 1:
    return f"{words[0]}, no GPU: all of this ran on {os.cpu_count()} CPU cores"
  query = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
  try:
    words.append(
      f"driver {subprocess.check_output(query, text=True).split()[0]}"
    )
  except (OSError, subprocess.CalledProcessError, IndexError):
    words.append("driver unknown")
  return ", ".join(words)


def main(argv: list[str]) -> None:
  del argv
  graph_rewrite.enable_on_cpu()
  if FLAGS.scales:
    print(json.dumps(_train_session(True)[1]))
    return
  print(f"{describe_machine()}, {time.strftime('%Y-%m-%d')}", flush=True)
  failed = 0
  if "checks" in FLAGS.only:
    print("\n| check | holds | seen |\n|---|---|---|")
    for check in (
      *(check_session, check_function, check_keras),
      *(check_rewrite, check_resume),
    ):
      try:
        cells = ("ok", check())
      except Failure as failure:
        failed, cells = failed + 1, ("FAILED", str(failure))
      print(f"| {check.__doc__} | {' | '.join(cells)} |", flush=True)
  if "steps" in FLAGS.only:
    time_steps()
  if "models" in FLAGS.only:
    time_models()
  sys.exit(bool(failed))


if __name__ == "__main__":
  app.run(main)
