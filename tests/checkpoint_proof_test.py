# SPDX-License-Identifier: Apache-2.0
"""Tests that restoring by name gives each variable its own value, or an error.

Each program is small. Before saving, every variable gets a different value, so
a value shows which variable it was saved from. Tests know a variable by its
role (number of the optimizer, what the variable is for it), not by its name.
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
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1


def build(*optimizers):
  """Builds a program; returns (optimizer, what) -> variable.

  Args:
    *optimizers: (scope, what wraps an Adam: "dynamic", "contrib" or "none").
  """
  found = {}
  for i, (scope, kind) in enumerate(optimizers):
    w = tf1.get_variable(f"w{i}", [2], use_resource=True)
    with tf1.name_scope(scope or None):
      opt = adam = tf1.train.AdamOptimizer(0.1)
      scale = None
      if kind == "dynamic":
        scale = tfl.DynamicLossScale()
        opt = tfl.MixedPrecisionLossScaleOptimizer(adam, scale)
      elif kind == "contrib":
        scale = tfl.contrib.ExponentialUpdateLossScaleManager(4.0, 3)
        opt = tfl.contrib.LossScaleOptimizer(adam, scale)
      opt.minimize(tf.reduce_sum(w * w), var_list=[w])
    found[i, "w"] = w
    found[i, "beta1"], found[i, "beta2"] = adam._get_beta_accumulators()
    for slot in ("m", "v"):
      found[i, slot] = adam.get_slot(w, slot)
    for name, variable in scale._weights.items() if scale else ():
      found[i, name.replace("current_", "")] = variable
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
      make_variables: Builds the graph; returns role -> variable.
      v2: Whether to build with TensorFlow 2's control flow.
    """
    with helpers.control_flow(v2), tf.Graph().as_default() as self._graph:
      self.variables = make_variables()
      self.saver = tf1.train.Saver()
    self._checkpoint = None

  @contextlib.contextmanager
  def session(self, get_value=lambda role: -1):
    """Yields a session in which variables have the values of their roles."""
    with self._graph.as_default(), tf1.Session() as session:
      set_values(session, self.variables, get_value)
      yield session

  def save(self, folder, meta=True):
    """Saves the program; returns the checkpoint and role -> value."""
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
    """Restores; returns role -> value, and the report."""
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
def _folder_of_programs(tmp_path_factory):
  """Makes the folder into which each program is saved once."""
  Program.folder = tmp_path_factory.mktemp("programs")


def set_values(session, variables, get_value):
  """Sets each variable to the value of its role."""
  feeds = {}
  for role, variable in variables.items():
    dtype = variable.dtype.base_dtype.as_numpy_dtype
    value = np.full(variable.shape, get_value(role), dtype)
    feeds[variable.initializer.inputs[1]] = value
  assert len(feeds) == len(variables)
  session.run([v.initializer for v in variables.values()], feeds)


def get_values(session, variables):
  """Returns role -> value; all elements of a variable have one value."""
  values = session.run(variables)
  return {role: float(np.ravel(v)[0]) for role, v in values.items()}


@functools.cache
def _build_program(optimizers, v2):
  return Program(lambda: build(*optimizers), v2)


def get_program(optimizers, v2):
  """Returns the program with these optimizers, as `build` takes them."""
  return _build_program(tuple(optimizers), v2)


def save_program(folder, optimizers, v2, meta=True):
  return get_program(optimizers, v2).save(folder, meta)


def restore_program(path, optimizers, v2, **kwargs):
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


_GAN = [("train_gen", "dynamic"), ("train_disc", "dynamic")]
_PAIRS = {
  "against the alphabet": (_GAN, _GAN),
  "numbers": ([("s10", "dynamic"), ("s2", "dynamic")],) * 2,
  "one outside": ([("s", "dynamic"), ("", "dynamic")],) * 2,
  "three": ([("b", "dynamic"), ("", "none"), ("a", "contrib")],) * 2,
  "plain and wrapped": ([("", "none"), ("", "dynamic")],) * 2,
  "wrapped and plain": ([("", "dynamic"), ("", "none")],) * 2,
  "wrapped here": (
    [("", "none"), ("", "dynamic")],
    [("", "dynamic"), ("", "dynamic")],
  ),
  "exchanged": (
    [("", "none"), ("", "dynamic")],
    [("", "dynamic"), ("", "none")],
  ),
  "contrib beside compat": (
    [("", "contrib"), ("", "dynamic")],
    [("", "dynamic"), ("", "contrib")],
  ),
  "one here": ([("a", "dynamic"), ("b", "dynamic")], [("a", "dynamic")]),
  "another scope": (
    [("opt_a", "none"), ("opt_b", "dynamic")],
    [("opt_a", "dynamic"), ("opt_b", "none")],
  ),
}


@pytest.mark.parametrize("there", ["v1", "v2"])
@pytest.mark.parametrize("here", ["v1", "v2"])
@pytest.mark.parametrize("pair", list(_PAIRS))
def test_with_a_meta_graph(pair, here, there, tmp_path):
  """With a MetaGraph, the graphs prove which value is whose."""
  theirs, ours = _PAIRS[pair]
  path, values = save_program(tmp_path, theirs, there == "v2")
  found, report = restore_program(path, ours, here == "v2")
  for key, value in found.items():
    if key in values:
      assert value == values[key], (key, report)
    else:
      assert value != -1  # Initialized.
  initialized = {key for key in found if key not in values}
  assert len(find_started_anew(report)) == len(initialized)
  assert {key[1] for key in initialized} <= {
    *("loss_scale", "good_steps", "bad_steps")
  }


@pytest.mark.any_release
@pytest.mark.parametrize("there", ["v1", "v2"])
@pytest.mark.parametrize("here", ["v1", "v2"])
@pytest.mark.parametrize("pair", list(_PAIRS))
def test_without_a_meta_graph(pair, here, there, tmp_path):
  """Without a MetaGraph, restoring is right or an error asks for a mapping."""
  theirs, ours = _PAIRS[pair]
  path, values = save_program(tmp_path, theirs, there == "v2", meta=False)
  names = {name for name, _ in tf1.train.list_variables(path)}
  try:
    found, report = restore_program(path, ours, here == "v2")
  except checkpoint.CheckpointError as error:
    assert "nothing proves" in str(error) and "mapping={" in str(error)
    assert "--map" in str(error) and "\n" not in str(error)
    return
  if not report.bridged and not report.initialized and not report.unused:
    assert set(report.restored) == names  # As TensorFlow's Saver has it.
    return
  given = {key for key in found if key in values}
  assert {key: found[key] for key in given} == {k: values[k] for k in given}
  assert len(find_started_anew(report)) == len(found) - len(given)


def test_the_mapping_decides(tmp_path):
  path, values = save_program(tmp_path, _GAN, False, meta=False)
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, [("", "dynamic"), ("", "dynamic")], True)
  mapping = {
    "current_loss_scale": "train_gen/current_loss_scale",
    "current_loss_scale_1": "train_disc/current_loss_scale",
  }
  for i, scope in ((0, "train_gen"), (1, "train_disc")):
    for power in ("beta1_power", "beta2_power"):
      here = power + "_1" * i
      assert here in str(error.value)
      assert f"{scope}/cond_1/{power}" in str(error.value)
      mapping[here] = f"{scope}/cond_1/{power}"
  found, report = restore_program(
    path, [("", "dynamic"), ("", "dynamic")], True, mapping=mapping
  )
  assert found == values
  assert "mapping" in report.proofs["beta1_power_1"]
  assert report.bridged["good_steps"] == "train_gen/good_steps"


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("mapping", "what"),
  [
    ({"w": "w0"}, "'w'.*nearest: .*no variable"),
    ({"w0": "v0"}, "'v0'.*not in the checkpoint"),
  ],
)
def test_a_mapping_of_what_is_not_there(mapping, what, tmp_path):
  path, _ = save_program(tmp_path, _GAN, False)
  with pytest.raises(ValueError, match=what):
    restore_program(path, _GAN, False, mapping=mapping)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("meta", [False, True])
def test_some_variables_of_an_optimizer(meta, v2, tmp_path):
  """Variables that are not to be restored are evidence, too."""
  optimizers = _GAN if meta else _GAN[:1]
  path, values = save_program(tmp_path, optimizers, False, meta)
  program = get_program(optimizers, v2)
  for wanted in (["loss_scale"], ["good_steps"], ["beta2"], ["w", "beta1"]):
    chosen = {
      role: variable
      for role, variable in program.variables.items()
      if role[1] in wanted
    }
    found, _ = program.restore(path, variables=[*chosen.values()])
    for role, value in found.items():
      assert value == (values[role] if role in chosen else -1), role


@pytest.mark.parametrize("v2", [False, True])
def test_moving_averages_as_weights(v2, tmp_path):
  """A loss scale keeps its name if its weights are restored by other names."""

  def build_average():
    w = tf1.get_variable("w", [2], use_resource=True)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale()
    )
    average = tf.train.ExponentialMovingAverage(0.5)
    with tf1.control_dependencies([opt.minimize(tf.reduce_sum(w * w))]):
      average.apply([w])
    return average

  def build_variables():
    build_average()
    return {v.op.name: v for v in tf1.global_variables()}

  path, values = Program(build_variables, False).save(tmp_path)
  with helpers.control_flow(v2), tf.Graph().as_default():
    saved = build_average().variables_to_restore()
    saved = {key: v for key, v in saved.items() if "Adam" not in key}
    with tf1.Session() as session:
      checkpoint.Saver(saved).restore(session, path)
      got = get_values(session, saved)
  averaged = "w/ExponentialMovingAverage"
  assert got[averaged] == values[averaged]
  assert got["current_loss_scale"] == values["current_loss_scale"]


def test_a_converted_checkpoint_has_no_meta_graph_of_an_older_one(tmp_path):
  """A MetaGraph of an overwritten checkpoint must not count as evidence."""
  (tmp_path / "old").mkdir()
  old, _ = save_program(tmp_path / "old", _GAN[::-1], True)
  path, values = save_program(tmp_path, _GAN, False)
  checkpoint.convert(path, old, "saver-v2", overwrite=True)
  assert not os.path.exists(f"{old}.meta")
  found, _ = restore_program(old, _GAN, True)
  assert found == values


def test_a_meta_graph_that_is_older_is_not_of_the_checkpoint(tmp_path):
  path, _ = save_program(tmp_path, _GAN, False)
  os.utime(f"{path}.meta", (0, 0))
  with pytest.raises(checkpoint.CheckpointError, match=r"'\.meta' file"):
    restore_program(path, [("", "dynamic")] * 2, True)


@pytest.mark.any_release
def test_mapped_weights_are_evidence(tmp_path):
  """A mapping of weights also shows which power and loss scale is whose."""
  path, values = save_program(tmp_path, [("", "dynamic")] * 2, False)
  mapping = {
    f"w{i}{slot}": f"w{1 - i}{slot}"
    for i in range(2)
    for slot in ("", "/Adam", "/Adam_1")
  }
  found, _ = restore_program(path, [("", "dynamic")] * 2, True, mapping=mapping)
  assert found == {(i, what): values[1 - i, what] for i, what in found}


@pytest.mark.any_release
def test_a_mapping_against_the_proof(tmp_path):
  """The mapping wins; a loss scale that it leaves without any is an error."""
  path, values = save_program(tmp_path, [("", "dynamic")] * 2, False)
  crossed = {"good_steps": "good_steps_1"}
  with pytest.raises(checkpoint.CheckpointError, match="current_loss_scale_1"):
    restore_program(path, [("", "dynamic")] * 2, False, mapping=crossed)
  crossed["good_steps_1"] = "good_steps"
  found, _ = restore_program(
    path, [("", "dynamic")] * 2, False, mapping=crossed
  )
  for i in range(2):
    for what in ("loss_scale", "good_steps"):
      assert found[i, what] == values[1 - i, what]


@pytest.mark.any_release
def test_a_mapping_of_one_power_is_of_both(tmp_path):
  path, values = save_program(tmp_path, [("", "none")] * 2, True, meta=False)
  found, _ = restore_program(
    path, [("", "none")] * 2, True, mapping={"beta1_power": "beta1_power_1"}
  )
  for i in range(2):
    for power in ("beta1", "beta2"):
      assert found[i, power] == values[1 - i, power]


@pytest.mark.any_release
def test_many_missing_variables_are_no_long_wait(tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    variables(**{f"a{i}": 0.0 for i in range(300)})
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf1.Session() as session:
    variables(**{f"layer{i}": 0.0 for i in range(300)})
    with pytest.raises(checkpoint.CheckpointError, match="and 280 more"):
      checkpoint.restore(session, path)


def edit_meta_graph(path, edit):
  meta = tf1.MetaGraphDef()
  with open(f"{path}.meta", "rb") as file:
    meta.ParseFromString(file.read())
  edit(meta.graph_def)
  with open(f"{path}.meta", "wb") as file:
    file.write(meta.SerializeToString())


def read_itself(graph_def):
  """Gives ops themselves as inputs, which no graph of TensorFlow has."""
  for node in graph_def.node:
    if node.op == "ReadVariableOp":
      node.input[0] = node.name


def call_for_ever(graph_def):
  """Adds 40 functions that call the next one twice: 2**40 calls."""
  for i in range(40):
    function = graph_def.library.function.add()
    function.signature.name = f"f{i}"
    for j in range(2 * (i < 39)):
      function.node_def.add(name=f"call{j}", op=f"f{i + 1}")
  graph_def.node.add(name="call", op="f0")


@pytest.mark.any_release
@pytest.mark.parametrize("edit", [read_itself, call_for_ever])
def test_a_strange_meta_graph_proves_nothing(edit, tmp_path):
  path, _ = save_program(tmp_path, _GAN, False)
  edit_meta_graph(path, edit)
  match = "nothing proves|is not in it"
  with pytest.raises(checkpoint.CheckpointError, match=match):
    restore_program(path, [("", "dynamic")] * 2, True)


@pytest.mark.any_release
def test_a_mapping_to_none_initializes(tmp_path):
  path, _ = save_program(tmp_path, [("", "dynamic")], False)
  found, report = restore_program(
    path, [("", "dynamic")], False, mapping={"good_steps": None}
  )
  assert found[0, "good_steps"] == 0
  assert list(report.initialized) == ["good_steps"]
  found, report = restore_program(
    path, [("", "dynamic")], False, mapping={"current_loss_scale": None}
  )
  assert (found[0, "loss_scale"], found[0, "good_steps"]) == (2**15, 0)


def variables(**values):
  """Creates variables; returns keyword -> variable. `a__b` is named `a/b`."""
  return {
    name: tf1.get_variable(name.replace("__", "/"), initializer=value)
    for name, value in values.items()
  }


@pytest.mark.parametrize("meta", [False, True])
def test_an_exact_name_wins(meta, tmp_path):
  """The model's own scopes may be named like conds."""
  program = Program(lambda: variables(cond__w=1.0, cond_1__w=2.0), False)
  path, values = program.save(tmp_path, meta)
  with tf.Graph().as_default(), tf1.Session() as session:
    here = variables(w=0.0, cond__w=0.0)
    try:
      checkpoint.restore(session, path)
    except checkpoint.CheckpointError as error:
      assert meta and "w is not in it" in str(error)
      report = checkpoint.restore(session, path, missing="initialize")
      assert report.initialized == {"w": "it is not in the checkpoint"}
    else:
      assert not meta and session.run(here["w"]) == values["cond_1__w"]
    assert session.run(here["cond__w"]) == values["cond__w"]


@functools.cache
def get_users_program(before, kind, after=(), v2=False):
  """Returns a program with variables of the user's around an optimizer.

  Args:
    before: (name, dtype) of variables to create first.
    kind: What wraps the optimizer, as `build` takes it.
    after: (name, dtype) of variables to create last.
    v2: Whether to build with TensorFlow 2's control flow.
  """

  def build_all():
    found = {}
    for names in (before, None, after):
      if names is None:
        found |= build(("", kind))
      for name, dtype in names or ():
        found["user", dtype, name] = tf1.Variable(
          np.zeros([], dtype), name=name, use_resource=True
        )
    return found

  return Program(build_all, v2)


_USERS = (
  ("good_steps", "int64"),
  ("loss_scale", "float32"),
  ("current_loss_scale", "float64"),
  ("good_steps", "int32"),
  ("beta1_power", "float32"),
)


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("there", ["dynamic", "none", "contrib"])
@pytest.mark.parametrize("here", ["dynamic", "none", "contrib"])
def test_variables_of_the_user_are_their_own(there, here, place, tmp_path):
  """The user's variables that are named like a loss scale's are restored."""
  before = _USERS if place == "before" else ()
  after = _USERS if place == "after" else ()
  path, values = get_users_program(before, there, after).save(tmp_path)
  program = get_users_program(before, here, after, v2=True)
  try:
    found, report = program.restore(path)
  except checkpoint.CheckpointError as error:
    assert "mapping={" in str(error)
    return
  for role, value in found.items():
    if role in values:
      assert value == values[role], (role, report)
    else:
      name = program.variables[role].op.name
      assert name in find_started_anew(report)


@pytest.mark.parametrize("meta", [False, True])
def test_a_scale_is_set_in_loss_scales_alone(meta, tmp_path):
  before = (("good_steps", "int64"), ("current_loss_scale", "float64"))
  path, _ = get_users_program(before, "dynamic").save(tmp_path, meta)
  new = str(tmp_path / "new")
  arguments = ["convert", path, new, "--to=saver", "--set-loss-scale=8"]
  if not meta:
    with pytest.raises(checkpoint.CheckpointError, match="nothing proves"):
      checkpoint.convert(path, new, "saver", set_loss_scale=8)
    return
  assert cli.main(arguments) == 0
  reader, old = tf.train.load_checkpoint(new), tf.train.load_checkpoint(path)
  changed = {"current_loss_scale_1": 8.0, "good_steps_1": 0}
  for name, _ in tf1.train.list_variables(path):
    expected = changed.get(name, old.get_tensor(name))
    np.testing.assert_array_equal(reader.get_tensor(name), expected)
    assert reader.get_tensor(name).dtype == old.get_tensor(name).dtype


def test_a_description_has_the_loss_scale_alone(tmp_path):
  program = get_users_program((("good_steps", "int64"),), "dynamic")
  path, values = program.save(tmp_path)
  (state,) = checkpoint.describe(path).loss_scales
  assert state.names == ("current_loss_scale", "good_steps_1")
  assert state.good_steps == values[0, "good_steps"]
  os.remove(f"{path}.meta")
  assert not checkpoint.describe(path).loss_scales  # Nothing proves which.


@pytest.mark.any_release
def test_no_scale_is_added_over_a_variable(tmp_path):
  program = Program(lambda: variables(current_loss_scale=np.float64(3)), False)
  path, _ = program.save(tmp_path)
  with pytest.raises(checkpoint.CheckpointError, match="a variable of its own"):
    checkpoint.convert(path, tmp_path / "new", "saver", reset=True)


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("pair", ["numbers", "three", "plain and wrapped"])
@pytest.mark.parametrize("there", ["v1", "v2"])
@pytest.mark.parametrize("here", ["v1", "v2"])
def test_converted_for_tensorflows_saver(pair, here, there, meta, tmp_path):
  """TensorFlow's own Saver restores a converted checkpoint rightly."""
  optimizers = [
    (scope, "dynamic" if kind == "contrib" else kind)
    for scope, kind in _PAIRS[pair][0]
  ]
  path, values = save_program(tmp_path, optimizers, there == "v2", meta)
  new = str(tmp_path / "new")
  layout = "saver" if here == "v1" else "saver-v2"
  try:
    checkpoint.convert(path, new, layout)
  except checkpoint.CheckpointError as error:
    assert not meta and here != there and "mapping={" in str(error)
    assert not list(tmp_path.glob("new*"))
    return
  program = get_program(optimizers, here == "v2")
  with program.session() as session:
    program.saver.restore(session, new)
    assert get_values(session, program.variables) == values


@pytest.mark.any_release
def test_the_command_line_maps(tmp_path, capsys):
  path, _ = save_program(tmp_path, _PAIRS["numbers"][0], False, meta=False)
  new = str(tmp_path / "new")
  command = ["convert", path, new, "--to=saver-v2"]
  with pytest.raises(SystemExit) as exit_:
    cli.main(command)
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert "--map HERE=THERE" in line and "s10/cond_1/beta1_power" in line
  for power in ("beta1_power", "beta2_power"):
    command += [f"--map={power}=s10/cond_1/{power}"]
    command += [f"--map={power}_1=s2/cond_1/{power}"]
  assert cli.main(command) == 0
  reader, old = tf.train.load_checkpoint(new), tf.train.load_checkpoint(path)
  assert reader.get_tensor("beta2_power_1") == old.get_tensor(
    "s2/cond_1/beta2_power"
  )


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("text", "what"),
  [("a", "HERE=THERE"), ("=a", "HERE=THERE"), ("nope=no", "'no'")],
)
def test_mistakes_in_maps(text, what, tmp_path, capsys):
  path, _ = save_program(tmp_path, _GAN, False)
  with pytest.raises(SystemExit) as exit_:
    new = str(tmp_path / "new")
    cli.main(["convert", path, new, "--to=saver-v2", f"--map={text}"])
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert what in line


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize(
  "pair", ["numbers", "one outside", "three", "wrapped and plain"]
)
def test_the_same_layout_is_the_same_file(pair, v2, tmp_path):
  """Converting to the same layout keeps all, and scopes named like conds."""
  optimizers = [
    (scope, "dynamic" if kind == "contrib" else kind)
    for scope, kind in _PAIRS[pair][0]
  ]
  program = Program(
    lambda: (
      build(*optimizers)
      | variables(cond__w=1.0, a__cond_3__b=2.0, cond_1__cond__c=0.0)
    ),
    v2,
  )
  path, _ = program.save(tmp_path)
  for meta in (True, False):
    done = checkpoint.convert(
      path, tmp_path / "new", "saver-v2" if v2 else "saver", overwrite=True
    )
    assert not done.renamed and not done.dropped and not done.added
    assert read_bytes(str(tmp_path / "new")) == read_bytes(path), meta
    if meta:
      os.remove(f"{path}.meta")


def read_bytes(path):
  """Returns name -> the bytes of its tensor."""
  reader = tf.train.load_checkpoint(path)
  return {
    name: reader.get_tensor(name).tobytes()
    for name, _ in tf1.train.list_variables(path)
  }


def test_missing_slots(tmp_path):
  path, values = save_program(tmp_path, [("", "none")], False)
  more = [("", "none"), ("", "none")]
  with pytest.raises(checkpoint.CheckpointError, match="w1/Adam"):
    restore_program(path, more, False)
  found, report = restore_program(path, more, False, missing="initialize")
  assert {n for n in report.initialized if n.startswith("w1")} == {
    *("w1", "w1/Adam", "w1/Adam_1")
  }
  assert {key: found[key] for key in values} == values
  with pytest.raises(ValueError, match="missing must be 'error' or 'init"):
    restore_program(path, more, False, missing="ignore")


@pytest.mark.any_release
def test_a_meta_graph_of_another_program_proves_nothing(tmp_path):
  path, _ = save_program(tmp_path, _PAIRS["numbers"][0], False)
  for folder in ("other", "damaged"):
    (tmp_path / folder).mkdir()
  other, _ = save_program(tmp_path / "other", _GAN, False)
  os.replace(f"{other}.meta", f"{path}.meta")
  with pytest.raises(checkpoint.CheckpointError, match="nothing proves"):
    restore_program(path, [("", "dynamic")] * 2, True)
  with open(f"{path}.meta", "r+b") as file:
    file.truncate(1000)
  with pytest.raises(checkpoint.CheckpointError, match="nothing proves"):
    restore_program(path, [("", "dynamic")] * 2, True)


if __name__ == "__main__":
  helpers.main()
