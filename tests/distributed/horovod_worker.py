# SPDX-License-Identifier: Apache-2.0
"""The program of a rank: horovodrun -np 2 python horovod_worker.py TASK FOLDER.

Each rank writes what it found to FOLDER/RANK.npz, by the names of the cases.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as hvd
import horovod_programs as programs
import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import distributed

tf1 = tf.compat.v1


def make_optimizer(case: programs.Case, **more: Any) -> Any:
  """Returns an optimizer of Horovod with a loss scale, in a case's order."""
  inner = programs.INNER[case.inner]()
  # Before the broadcast, each rank has a loss scale of its own.
  scale = 2.0 ** (10 + hvd.rank())
  if case.order == "inside":
    return hvd.DistributedOptimizer(programs.wrap(inner, case, scale), **more)
  return programs.wrap(hvd.DistributedOptimizer(inner, **more), case, scale)


def broadcast(program: programs.Program) -> None:
  """Gives all ranks the variables of rank 0, the loss scale included."""
  if program.graph is None:
    hvd.broadcast_variables(program.list_variables(), root_rank=0)
    return
  hook = hvd.BroadcastGlobalVariablesHook(0)
  hook.begin()
  hook.after_create_session(program.session, None)


def train(case: programs.Case, **more: Any) -> np.ndarray:
  """Returns the state of this rank after each step of a case."""
  program = programs.Program(
    case, lambda: make_optimizer(case, **more), initial=1.0 + hvd.rank()
  )
  program.start()
  broadcast(program)
  states = []
  for step in range(case.steps):
    program.step(programs.make_feeds(case.seed, step, hvd.rank()))
    states.append(program.state())
  program.close()
  return np.stack(states)


def run_cases(folder: pathlib.Path) -> dict[str, Any]:
  """Runs the cases that the folder's cases.json lists."""
  cases = json.loads((folder / "cases.json").read_text("utf-8"))
  results = {}
  for case in (programs.Case(**x) for x in cases):
    begin = time.monotonic()
    results[case.name] = train(case)
    print(f"{case.name}: {time.monotonic() - begin:.1f} s", flush=True)
  return results


def make_scaled(order: str, scale: Any, **more: Any) -> Any:
  """Returns an optimizer of Horovod around SGD, and a loss scale."""
  sgd = tf1.train.GradientDescentOptimizer(1.0)
  if order == "inside":
    return hvd.DistributedOptimizer(
      tfl.MixedPrecisionLossScaleOptimizer(sgd, scale), **more
    )
  return tfl.MixedPrecisionLossScaleOptimizer(
    hvd.DistributedOptimizer(sgd, **more), scale
  )


def train_graph(
  order: str,
  scale: Any,
  factors: list[list[float]],
  clip: bool = False,
  agrees: bool = False,
  **more: Any,
) -> np.ndarray:
  """Trains one variable in a graph of TensorFlow 1.

  Args:
    order: As a case has it.
    scale: Returns the loss scale.
    factors: The gradient by rank and by step.
    clip: Whether to pass clipped gradients, as a list.
    agrees: Whether the ranks agree by `distributed.agree`.
    **more: Arguments of `hvd.DistributedOptimizer`.

  Returns:
    For each step: the variable, the loss scale and the global step.
  """
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=0.0, use_resource=True)
    x = tf1.placeholder(tf.float32, [])
    loss_scale = scale()
    opt = make_scaled(order, loss_scale, **more)
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
        rows.append(session.run([v, loss_scale(), global_step]))
  return np.asarray(rows)


_INF = float("inf")


def run_options(folder: pathlib.Path) -> dict[str, Any]:
  """Trains with options of Horovod that bear on loss scaling."""
  del folder
  dynamic = functools.partial(tfl.DynamicLossScale, 8.0, 2)
  results: dict[str, Any] = {}
  bad = [[1.0, 1.0, 1.0, 1.0], [3.0, _INF, 3.0, 3.0]]
  for order in programs.ORDERS:
    for name, more in {
      "predivide": {"gradient_predivide_factor": 2.0},
      "groups": {"groups": 1},
      "half": {"compression": hvd.Compression.fp16},
      "sum": {"op": hvd.Sum},
    }.items():
      results[f"{name}-{order}"] = train_graph(order, dynamic, bad, **more)
    half = {"compression": hvd.Compression.fp16}
    large = functools.partial(tfl.DynamicLossScale, 2.0**15, 100)
    small = [[2.0**-26] * 2, [2.0**-26] * 2]
    results[f"small-{order}"] = train_graph(order, large, small, **half)
    big = [[8.0] * 6, [8.0] * 6]
    results[f"big-{order}"] = train_graph(order, large, big, **half)
  passes = {"backward_passes_per_step": 2}
  rows = [[1.0, 2.0, 1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 3.0, _INF, 7.0, 8.0]]
  for clip in (False, True):
    results[f"passes-{clip}"] = train_graph(
      "inside", dynamic, rows, clip, **passes
    )
  return {**results, **find_errors(), **train_adasum(), **train_local()}


def find_errors() -> dict[str, Any]:
  """Returns the messages of what cannot work."""
  passes = {"backward_passes_per_step": 2}
  found = {}
  with tf.Graph().as_default():
    try:
      make_scaled("outside", "dynamic", **passes)
    except ValueError as error:
      found["passes-outside"] = str(error)
    v = tf1.get_variable("v", initializer=0.0, use_resource=True)
    opt = make_scaled("inside", "dynamic", **passes)
    grads, variables = zip(*opt.compute_gradients(v * 1.0, [v]))
    try:
      opt.apply_gradients(zip(grads, variables))
    except ValueError as error:
      found["read-before"] = str(error)
  return found


def train_adasum() -> dict[str, Any]:
  """Trains with Adasum, whose ranks have gradients of their own."""
  results = {}
  bad = [[1.0, 1.0, 1.0], [1.0, _INF, 1.0]]
  for order in programs.ORDERS:
    dynamic = functools.partial(tfl.DynamicLossScale, 8.0, 2)
    results[f"adasum-{order}"] = train_graph(
      order, dynamic, bad, agrees=True, op=hvd.Adasum
    )
  return results


def train_local() -> dict[str, Any]:
  """Trains a variable that each rank has for itself, eagerly."""
  return {f"local-{order}": train_local_in(order) for order in programs.ORDERS}


def train_local_in(order: str) -> np.ndarray:
  """Returns the two variables and the loss scale after each step."""
  loss_scale = tfl.DynamicLossScale(8.0, 2)
  opt = make_scaled(order, loss_scale, scale_local_gradients=False)
  distributed.agree(loss_scale)
  local, shared, x = tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0.0)
  own = 1.0 + hvd.rank()
  (opt if order == "inside" else opt._optimizer).register_local_var(local)
  rows = []
  for step in range(3):
    x.assign(_INF if (hvd.rank(), step) == (1, 1) else own)
    opt.minimize(lambda: local * x + shared * own, var_list=[local, shared])
    rows.append([local.numpy(), shared.numpy(), loss_scale().numpy()])
  return np.asarray(rows)


def run_agreement(folder: pathlib.Path) -> dict[str, Any]:
  """Trains without an average of gradients, with agreement and without."""
  del folder
  results: dict[str, Any] = {}
  for mode in ("graph_v1", "graph_v2", "eager", "function"):
    for agrees in (True, False):
      results[f"{mode}-{agrees}"] = train_alone(mode, agrees)
  return results


def train_alone(mode: str, agrees: bool) -> np.ndarray:
  """Trains a variable by local gradients; the second rank has infinities.

  Returns:
    For each step: the variable and the loss scale.
  """
  with contextlib.ExitStack() as stack:
    if mode in programs.GRAPH_MODES:
      stack.enter_context(programs.control_flow(mode == "graph_v2"))
      stack.enter_context(tf.Graph().as_default())
    v = tf1.Variable(0.0, use_resource=True)
    loss_scale = tfl.DynamicLossScale(8.0, 2)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(1.0), loss_scale
    )
    if agrees:
      distributed.agree(opt)
    factors = [1.0, _INF if hvd.rank() == 1 else 1.0, 1.0]
    rows = []
    if mode in programs.GRAPH_MODES:
      x = tf1.placeholder(tf.float32, [])
      op = opt.minimize(v * x, var_list=[v])
      session = stack.enter_context(tf1.Session())
      session.run(tf1.global_variables_initializer())
      for value in factors:
        session.run(op, {x: value})
        rows.append(session.run([v, loss_scale()]))
      return np.asarray(rows)
    x = tf.Variable(0.0)

    def minimize() -> None:
      opt.minimize(lambda: v * x, var_list=[v])

    step = tf.function(minimize) if mode == "function" else minimize
    for value in factors:
      x.assign(value)
      step()
      rows.append([v.numpy(), loss_scale().numpy()])
    return np.asarray(rows)


def main() -> None:
  """Runs a task and writes its results."""
  task, folder = sys.argv[1], pathlib.Path(sys.argv[2])
  hvd.init()
  (folder / f"{hvd.rank()}.pid").write_text(str(os.getpid()), "utf-8")
  results = globals()[task](folder)
  np.savez(folder / f"{hvd.rank()}.npz", **results)
  hvd.shutdown()


if __name__ == "__main__":
  main()
