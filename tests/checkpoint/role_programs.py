# SPDX-License-Identifier: Apache-2.0
"""Builds programs that save a different value in each variable.

A value shows from which variable it was saved. Tests identify a variable by its
role (number of the optimizer, use of the variable) and not by its name.
"""

import contextlib
import functools
import os
import pathlib
import shutil
import tempfile

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1


INNER = {
  "adam": lambda: tf1.train.AdamOptimizer(0.1),
  "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
  "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.1, momentum=0.5),
  "descent": lambda: tf1.train.GradientDescentOptimizer(0.1),
}
_USERS = (
  ("good_steps", "int64"),
  ("loss_scale", "float32"),
  ("current_loss_scale", "float64"),
  ("good_steps", "int32"),
  ("beta1_power", "float32"),
)


def build(optimizers, is_shared=False, resource=True, users="none"):
  """Builds a program; returns role -> variable.

  Args:
    optimizers: (kind, scope, wrapper) of each optimizer, as in `INNER` and for
      `minimize`.
    is_shared: Whether the optimizers train one weight.
    resource: Whether weights are resource variables.
    users: "before" or "after" the optimizers, where the user's own variables
      are created, named like a loss scale's; or "none".
  """
  found = _add_users_variables() if users == "before" else {}
  for i, (inner, scope, kind) in enumerate(optimizers):
    w = found.get((0, "w")) if is_shared else None
    if w is None:
      w = tf1.get_variable(f"w{i}", [2], use_resource=resource)
      found[i, "w"] = w
    with tf1.name_scope(scope or None):
      made = minimize(INNER[inner](), kind, w)
    found.update({(i, use): variable for use, variable in made.items()})
  return found | (_add_users_variables() if users == "after" else {})


def _add_users_variables():
  return {
    ("user", dtype, name): tf1.Variable(
      np.zeros([], dtype), name=name, use_resource=True
    )
    for name, dtype in _USERS
  }


def wrap(inner, kind):
  """Returns an optimizer with a loss scale of a kind, and the loss scale."""
  if kind == "dynamic":
    scale = tfl.DynamicLossScale()
    return tfl.MixedPrecisionLossScaleOptimizer(inner, scale), scale
  if kind == "contrib":
    scale = tfl.contrib.ExponentialUpdateLossScaleManager(4.0, 3)
    return tfl.contrib.LossScaleOptimizer(inner, scale), scale
  return inner, None


def minimize(inner, kind, w):
  """Adds a step of a wrapped optimizer; returns use -> variable that it made.

  Args:
    inner: The optimizer.
    kind: "dynamic" or "contrib" for a wrapper with such a loss scale; another
      word for none.
    w: The variable that is trained.
  """
  opt, scale = wrap(inner, kind)
  opt.minimize(tf.reduce_sum(w * w), var_list=[w])
  found = {slot: inner.get_slot(w, slot) for slot in inner.get_slot_names()}
  if isinstance(inner, tf1.train.AdamOptimizer):
    found["beta1"], found["beta2"] = inner._get_beta_accumulators()
  for name, variable in scale._weights.items() if scale else ():
    found[name.replace("current_", "")] = variable
  return found


class Program:
  """A program whose graph is built once and used in many sessions.

  Attributes:
    variables: Role -> variable.
    saver: TensorFlow's own Saver of all variables.
  """

  folder = None

  def __init__(self, make_variables, v2):
    """Builds the graph.

    Args:
      make_variables: A function that builds the graph and returns role ->
        variable.
      v2: Whether to build with TensorFlow 2's control flow.
    """
    with helpers.control_flow(v2), tf.Graph().as_default() as self._graph:
      self.variables = make_variables()
      self.saver = tf1.train.Saver()
    self._checkpoint = None

  @contextlib.contextmanager
  def session(self, get_value=lambda role: -1):
    """Yields a session in which `get_value` gives variables their values."""
    with self._graph.as_default(), tf1.Session() as session:
      set_values(session, self.variables, get_value)
      yield session

  def save(self, folder, meta=True):
    """Saves the program; returns the checkpoint's path and role -> value."""
    values = {role: i for i, role in enumerate(self.variables, 2)}
    if self._checkpoint is None:
      self._checkpoint = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
      with self.session(values.__getitem__) as session:
        self.saver.save(session, str(self._checkpoint / "model"))
    for file in self._checkpoint.iterdir():
      if meta or file.suffix != ".meta":
        shutil.copy(file, folder)
    return os.path.join(folder, "model"), values

  def restore(self, path, **kwargs):
    """Restores a checkpoint; returns role -> value, and the report."""
    with self.session() as session:
      try:
        report = checkpoint.restore(session, path, **kwargs)
      except checkpoint.CheckpointError:
        values = session.run([*self.variables.values()])
        assert all(np.all(value == -1) for value in values)
        raise
      check_report(report)
      return get_values(session, self.variables), report


@pytest.fixture(scope="module", autouse=True)
def folder_of_programs(tmp_path_factory):
  """Makes the folder into which each program is saved once."""
  Program.folder = tmp_path_factory.mktemp("programs")


def set_values(session, variables, get_value):
  """Sets each variable to the value that `get_value` returns for its role."""
  feeds = {}
  for role, variable in variables.items():
    dtype = variable.dtype.base_dtype.as_numpy_dtype
    value = np.full(variable.shape, get_value(role), dtype)
    feeds[variable.initializer.inputs[1]] = value
  assert len(feeds) == len(variables)
  session.run([v.initializer for v in variables.values()], feeds)


def get_values(session, variables):
  """Returns role -> value, read from the first element of each variable."""
  values = session.run(variables)
  return {role: float(np.ravel(v)[0]) for role, v in values.items()}


@functools.cache
def _build_program(optimizers, v2):
  made = [("adam", scope, kind) for scope, kind in optimizers]
  return Program(lambda: build(made), v2)


def get_program(optimizers, v2):
  """Returns the program with these Adams: (scope, wrapper) of each."""
  return _build_program(tuple(optimizers), v2)


def save_program(folder, optimizers, v2, meta=True):
  """Saves a program; returns the checkpoint's path and role -> value."""
  return get_program(optimizers, v2).save(folder, meta)


def restore_program(path, optimizers, v2, **kwargs):
  """Restores into a program; returns role -> value, and the report."""
  return get_program(optimizers, v2).restore(path, **kwargs)


def check_report(report):
  """Checks that every variable of the graph is in the report exactly once."""
  parts = (report.restored, report.bridged, report.initialized, report.kept)
  listed = sorted(name for part in parts for name in part)
  assert listed == sorted(v.op.name for v in tf1.global_variables())
  assert set(report.proofs) == set(report.bridged)
  assert all(report.proofs.values())


def find_started_anew(report):
  """Returns the variables for which the checkpoint has no value."""
  made_up = {name for name, key in report.bridged.items() if not key}
  return made_up | set(report.initialized)


GAN = [("train_gen", "dynamic"), ("train_disc", "dynamic")]
