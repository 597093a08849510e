# SPDX-License-Identifier: Apache-2.0
"""Helpers for all tests: modes, processes, and a trainer for every mode."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import forks
import numpy as np
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


def _environment(env: dict[str, str]) -> dict[str, str]:
  """Returns the environment with `env`, and paths to the package and tests."""
  return {**os.environ, "PYTHONPATH": f"{ROOT}:{HARNESS}", **env}


def run_python(
  *args: str, timeout: float = 300, cwd: Any = ROOT, **env: str
) -> str:
  """Runs Python on `args` in a process of its own; returns standard output.

  Importing TensorFlow costs such a process five seconds. Use `run_forked` or
  `run_alone`, unless the test is about importing or starting: which modules
  get loaded and when, options of the interpreter, `sys.executable`.
  """
  done = subprocess.run(
    [sys.executable, *args],
    capture_output=True,
    cwd=cwd,
    env=_environment(env),
    text=True,
    timeout=timeout,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  return done.stdout


def start_forked(
  *args: str, stdout: Any, stderr: Any, cwd: Any = ROOT, **env: str
) -> forks.Forked:
  """Starts Python on `args` as `run_forked` does, for tests that kill it.

  Use the result, which has `pid`, `poll`, `wait` and `kill` as a
  `subprocess.Popen` has, in a `with` statement, which kills it at the end.
  """
  return forks.start(
    *args, env=_environment(env), cwd=cwd, stdout=stdout, stderr=stderr
  )


def run_forked(
  *args: str, timeout: float = 300, cwd: Any = ROOT, **env: str
) -> str:
  """Runs Python as `run_python` does, but starts 50 times as fast.

  The process is forked from a server that has imported TensorFlow, NumPy and
  pytest but has not started TensorFlow. So the process has its own TensorFlow
  runtime, with devices, behaviours and memory as in a new process. The process
  has no module of this process and none of the package.

  Variables that begin with TF_, TF2_, KERAS_ or PYTHON may be read while
  TensorFlow is imported. So each combination of their values has a server of
  its own, which takes five seconds to start.

  At the end, the process calls no `atexit` functions and waits for no threads.

  Args:
    *args: `-c CODE ARGS...`, `-m MODULE ARGS...` or `SCRIPT ARGS...`.
    timeout: Seconds after which the process is killed and the test fails.
    cwd: The folder to run in.
    **env: Variables to add to the environment.

  Returns:
    What the process printed to standard output.
  """
  done = complete_forked(*args, timeout=timeout, cwd=cwd, **env)
  assert done.returncode == 0, (
    f"Exit status: {done.returncode}\n{done.stdout}{done.stderr}"
  )
  return done.stdout


def complete_forked(
  *args: str, timeout: float = 300, cwd: Any = ROOT, **env: str
) -> subprocess.CompletedProcess[str]:
  """Runs Python as `run_forked` does, whatever the exit status."""
  with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
    with start_forked(*args, stdout=out, stderr=err, cwd=cwd, **env) as process:
      try:
        status = process.wait(timeout)
      except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        status = None
    out.seek(0)
    err.seek(0)
    printed, errors = out.read().decode(), err.read().decode()
  assert status is not None, (
    f"Killed after {timeout} seconds\n{printed}{errors}"
  )
  return subprocess.CompletedProcess(args, status, printed, errors)


def run_once(
  factory: pytest.TempPathFactory, *args: str, timeout: float = 300, **env: str
) -> str:
  """Runs `run_forked` once for all of pytest's workers; returns the output.

  The first argument is pytest's fixture `tmp_path_factory`.
  """
  folder = factory.getbasetemp()
  if "PYTEST_XDIST_WORKER" in os.environ:
    folder = folder.parent  # All workers share this folder.
  parts = [*args, *map("=".join, sorted(env.items()))]
  name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
  path = folder / name
  with open(folder / f"{name}.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not path.exists():
      printed = run_forked(*args, timeout=timeout, **env)
      path.write_text(printed, "utf-8")
  return path.read_text("utf-8")


parse_json = functools.cache(json.loads)  # Many tests read the same results.


def run_alone(
  function: Callable[[], None], timeout: float = 300, **env: str
) -> None:
  """Runs a function of a test module as `run_forked` does."""
  code = import_line(function.__code__.co_filename)
  code += f"test.{function.__name__}()"
  print(run_forked("-c", code, timeout=timeout, **env))


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


def import_line(path: str) -> str:
  """Returns code that imports the test module of a file as `test`."""
  file = pathlib.Path(path)
  return (
    f"import sys; sys.path.append({str(file.parent)!r}); "
    f"import {file.stem} as test\n"
  )


def resident_memory() -> int:
  """Returns the bytes of memory that this process holds.

  Memory that the allocator keeps for later is first given back to the system,
  because it is no growth of the program.
  """
  ctypes.CDLL("libc.so.6").malloc_trim(0)
  pages = int(pathlib.Path("/proc/self/statm").read_text("ascii").split()[1])
  return pages * os.sysconf("SC_PAGE_SIZE")


def in_threads(function: Callable[[int], Any], count: int) -> list[Any]:
  """Calls a function with 0, 1, … in threads at once; returns all results."""
  barrier = threading.Barrier(count, timeout=60)

  def call(i: int) -> Any:
    barrier.wait()
    return function(i)

  with futures.ThreadPoolExecutor(count) as pool:
    return list(pool.map(call, range(count), timeout=240))


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


def factor_of_replica(bad: tf.Tensor) -> tf.Tensor:
  """Returns infinity in the first replica if `bad`, and 1 otherwise."""
  context = tf.distribute.get_replica_context()
  first = context.replica_id_in_sync_group == 0
  return tf.where(tf.logical_and(bad, first), float("inf"), 1.0)


def variable_names() -> list[str]:
  """Returns the sorted names of the default graph's variables."""
  return sorted(v.op.name for v in tf1.global_variables())


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
    mode: One of MODES.
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
      self.graph = stack.enter_context(mode_scope(mode))
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
