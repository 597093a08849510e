"""Times a training step's optimizer, and building it: python -m benchmarks

Rivals take turns, a step each, in one process: the bare optimizer, the one of
TensorFlow, and this package's. Only ratios of their medians say anything.
"""

from __future__ import annotations

from collections.abc import Callable
import gc
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app
from absl import flags
import tensorflow as tf

from benchmarks import checkpoints
from benchmarks import shapes
from benchmarks import start
import tf_compat_lossscale as tfl

try:
  from rich import box
  from rich.console import Console
  from rich.progress import track
  from rich.table import Table
except ImportError:
  raise SystemExit(
    "benchmarks need rich: pip install 'tf_compat_lossscale[bench]'"
  ) from None

FLAGS = flags.FLAGS
flags.DEFINE_float(
  "seconds", 12, "How long to time a set of variables.", lower_bound=0
)
flags.DEFINE_integer(
  "steps", 100, "Steps of each rival to time at least.", lower_bound=4
)
flags.DEFINE_integer("builds", 5, "Timed builds of each rival.", lower_bound=1)
flags.DEFINE_multi_enum(
  "shape", list(shapes.SHAPES), list(shapes.SHAPES), "What to time."
)
flags.DEFINE_enum(
  "optimizer", "momentum", ["sgd", "momentum", "adam"], "The inner optimizer."
)
flags.DEFINE_integer(
  "starts", 7, "Timed starts of a program; 0 for none.", lower_bound=0
)
flags.DEFINE_integer(
  "checkpoints", 3, "Timed rounds with checkpoints; 0 for none.", lower_bound=0
)
flags.DEFINE_bool("large", True, "Converts one of 2 GiB, too.")
flags.DEFINE_bool("v2", False, "Times TensorFlow 2's control flow.")

tf1 = tf.compat.v1
_OPTIMIZERS = {
  "sgd": lambda: tf1.train.GradientDescentOptimizer(1e-6),
  "momentum": lambda: tf1.train.MomentumOptimizer(1e-6, 0.9),
  "adam": lambda: tf1.train.AdamOptimizer(1e-6),
}
_OWN = tf1.mixed_precision
_ERRORS = Console(stderr=True)
_Wrap = Callable[[tf1.train.Optimizer], tf1.train.Optimizer]
RIVALS: dict[str, _Wrap] = {
  "bare": lambda opt: opt,
  "TensorFlow": lambda opt: _OWN.MixedPrecisionLossScaleOptimizer(
    opt, _OWN.DynamicLossScale()
  ),
  "ours": lambda opt: tfl.MixedPrecisionLossScaleOptimizer(
    opt, tfl.DynamicLossScale()
  ),
}


class Rival:
  """A training step in a graph of its own, without a model."""

  def __init__(self, wrap: _Wrap, variable_shapes: list[shapes.Shape]):
    gc.collect()  # What is left of other graphs is not this one's to pay for.
    begin = time.perf_counter()
    with tf.Graph().as_default() as graph:
      variables = [
        tf1.get_variable(
          f"v{i}",
          shape,
          initializer=tf1.ones_initializer(),
          use_resource=True,
        )
        for i, shape in enumerate(variable_shapes)
      ]
      loss = tf.add_n([tf.nn.l2_loss(v) for v in variables])
      opt = wrap(_OPTIMIZERS[FLAGS.optimizer]())
      step = tf1.train.get_or_create_global_step()
      self._train = opt.minimize(loss, global_step=step)
      self.build_seconds = time.perf_counter() - begin
      initialize = tf1.global_variables_initializer()
    proto = graph.as_graph_def()
    self.nodes = len(proto.node) + sum(
      len(function.node_def) for function in proto.library.function
    )
    self._session = tf1.Session(graph=graph)
    self._session.run(initialize)
    self._run = self._session.make_callable(self._train)

  def step(self) -> float:
    """Seconds that one step took."""
    begin = time.perf_counter()
    self._run()
    return time.perf_counter() - begin

  def close(self) -> None:
    self._session.close()


def time_shape(name: str) -> dict[str, dict[str, float]]:
  """Rival -> medians of step and build seconds, quartiles and nodes."""
  builds: dict[str, list[float]] = {rival: [] for rival in RIVALS}
  for i in range(FLAGS.builds):
    rivals = {}
    for rival, wrap in RIVALS.items():
      rivals[rival] = Rival(wrap, shapes.SHAPES[name])
      builds[rival].append(rivals[rival].build_seconds)
    if i < FLAGS.builds - 1:
      for rival in rivals.values():
        rival.close()
  for _ in range(3):  # To warm up, and to see how long a round takes.
    round_seconds = sum(rival.step() for rival in rivals.values())
  rounds = max(FLAGS.steps, int(FLAGS.seconds / round_seconds))
  steps: dict[str, list[float]] = {rival: [] for rival in RIVALS}
  for _ in track(range(rounds), name, transient=True, console=_ERRORS):
    for rival, timed in rivals.items():
      steps[rival].append(timed.step())
  for rival in rivals.values():
    rival.close()
  return {
    rival: {
      "step": statistics.median(steps[rival]),
      "quartiles": statistics.quantiles(steps[rival], n=4),
      "build": statistics.median(builds[rival]),
      "nodes": rivals[rival].nodes,
    }
    for rival in RIVALS
  }


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"Arguments are not understood: {argv[1:]}")
  if FLAGS.v2:
    tf1.enable_control_flow_v2()
  else:
    tf1.disable_control_flow_v2()
  table = Table(
    "variables",
    "step: TensorFlow / bare",
    "ours / bare",
    "ours / TensorFlow",
    "spread",
    "build: ours / TensorFlow",
    "nodes: TensorFlow",
    "ours",
    title=f"TensorFlow {tf.__version__}, {FLAGS.optimizer}, "
    f"control flow v{2 if FLAGS.v2 else 1}",
    box=box.SIMPLE,
  )
  for name in FLAGS.shape:
    timed = time_shape(name)
    bare, own, ours = (timed[rival] for rival in RIVALS)
    spread = max(
      (t["quartiles"][2] - t["quartiles"][0]) / t["step"] / 2
      for t in (own, ours)
    )
    table.add_row(
      name,
      f"{own['step'] / bare['step']:.3f}",
      f"{ours['step'] / bare['step']:.3f}",
      f"{ours['step'] / own['step']:.3f}",
      f"±{spread:.1%}",
      f"{ours['build'] / own['build']:.2f}",
      str(own["nodes"]),
      str(ours["nodes"]),
    )
  Console(width=110).print(table)
  if FLAGS.starts:
    table = Table("start", "best", box=box.SIMPLE)
    for row in start.rows(FLAGS.starts):
      table.add_row(*row)
    Console(width=110).print(table)
  if FLAGS.checkpoints:
    table = Table("checkpoints", "", box=box.SIMPLE)
    for row in checkpoints.rows(FLAGS.checkpoints, FLAGS.large):
      table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
  app.run(main)
