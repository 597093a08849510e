# SPDX-License-Identifier: Apache-2.0
"""Helpers for all tests: modes, releases, optimizers and goldens."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import functools
import itertools
import json
import os
import pathlib
import signal
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
from switches import control_flow as control_flow
import tensorflow as tf

from tf_compat_lossscale import _releases

tf1 = tf.compat.v1
OWN = tf.compat.v1.mixed_precision  # TensorFlow's own classes, to compare with.
HARNESS = pathlib.Path(__file__).absolute().parent
TESTS = HARNESS.parent
ROOT = TESTS.parent
GOLDENS = TESTS / "goldens"
MODES = ("graph_v1", "graph_v2", "eager", "function")
GRAPH_MODES = MODES[:2]
RELEASE = tuple(map(int, tf.__version__.split(".")[:2]))
# A program that uses Keras 2 needs this before it imports TensorFlow.
KERAS_2 = (
  {"TF_USE_LEGACY_KERAS": "1"} if RELEASE >= _releases.WITH_KERAS_3 else {}
)
# The same for Keras 3, which is TensorFlow's own since 2.16.
KERAS_3 = (
  {"TF_USE_LEGACY_KERAS": "0"} if os.getenv("TF_USE_LEGACY_KERAS") else {}
)
NEEDS_KERAS_3 = pytest.mark.skipif(
  RELEASE < _releases.WITH_KERAS_3, reason="Keras 3 comes with TensorFlow 2.16"
)

# The optimizers to wrap: all of `tf.compat.v1.train` that take dense and sparse
# gradients of every floating-point dtype.
INNER: dict[str, Callable[[], tf1.train.Optimizer]] = {
  "sgd": lambda: tf1.train.GradientDescentOptimizer(0.5),
  "momentum": lambda: tf1.train.MomentumOptimizer(0.5, 0.9),
  "nesterov": lambda: tf1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
  "adam": lambda: tf1.train.AdamOptimizer(0.1),
  "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.1, momentum=0.5),
  "centered": lambda: tf1.train.RMSPropOptimizer(0.1, centered=True),
  "adagrad": lambda: tf1.train.AdagradOptimizer(0.1),
  "adadelta": lambda: tf1.train.AdadeltaOptimizer(0.1),
  "ftrl": lambda: tf1.train.FtrlOptimizer(0.1),
}

# Two devices, for tests with two replicas. TensorFlow takes this setting only
# before it starts.
tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices("CPU")[0],
  [tf.config.LogicalDeviceConfiguration()] * 2,
)

# A shell that starts the tests in the background makes all processes ignore
# Ctrl-C. Tests that send one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)


parse_json = functools.cache(json.loads)  # Many tests read the same results.


def list_goldens(*cases: str) -> list[str]:
  """Returns the goldens of these cases, as paths in `GOLDENS`."""
  return sorted(
    str(path.parent.relative_to(GOLDENS))
    for case in cases
    for path in GOLDENS.glob(f"tf-*/{case}_*/expected.json")
  )


def expected_of(golden: str) -> Any:
  """Returns the recorded steps of the release that wrote a golden."""
  return json.loads((GOLDENS / golden / "expected.json").read_text())


class Rows(list[tuple[Any, ...]]):
  """Rows that combine values of parameters, as `tests/conftest.py` knows."""

  combine = True


def pairs(*choices: Iterable[Any], allowed: Any = None) -> Rows:
  """Returns few rows, with each pair of two parameters' values in some row.

  Args:
    *choices: The values of each parameter.
    allowed: A function that returns whether a row is allowed; all are by
      default.
  """
  rows = list(
    filter(allowed or (lambda row: True), itertools.product(*choices))
  )

  def pairs_of(row: tuple) -> set[tuple]:
    return set(itertools.combinations(enumerate(row), 2))

  left = set().union(*map(pairs_of, rows))
  chosen = Rows()
  while left:
    best = max(rows, key=lambda row: len(pairs_of(row) & left))
    left -= pairs_of(best)
    chosen.append(best)
  return chosen


@contextlib.contextmanager
def mode_scope(mode: str) -> Iterator[tf.Graph | None]:
  """Enters a new graph in a graph mode, and yields None in another mode."""
  if mode not in GRAPH_MODES:
    yield None
    return
  with control_flow(mode == "graph_v2"), tf.Graph().as_default() as graph:
    yield graph


def two_replicas() -> tf.distribute.Strategy:
  """Returns a strategy of two replicas on the CPU, without collective ops.

  All strategies of a process share the keys of collective ops. So strategies
  that use collective ops fail if tests run in another order.
  """
  reduction = tf.distribute.ReductionToOneDevice()
  return tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"], reduction)


def read_scalars(folder: pathlib.Path) -> dict[int, dict[str, float]]:
  """Returns step -> the scalars of the event files, without the prefix."""
  found: dict[int, dict[str, float]] = {}
  for path in sorted(folder.iterdir()):
    for event in tf1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        name = value.tag.removeprefix("loss_scale/")
        found.setdefault(event.step, {})[name] = value.simple_value
  return found


def variable_names() -> list[str]:
  """Returns the sorted names of the default graph's variables."""
  return sorted(v.op.name for v in tf1.global_variables())
