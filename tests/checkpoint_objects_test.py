# SPDX-License-Identifier: Apache-2.0
"""Tests that restoring by object gives each variable its own value or an error.

Before saving, every variable gets a different value, so a value shows which
variable it was saved from.
"""

import contextlib
import os
import random

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import _restoring_objects
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.layouts import by_object

tf1 = tf.compat.v1
_INNER = {
  "sgd": lambda: tf1.train.GradientDescentOptimizer(0.1),
  "adam": lambda: tf1.train.AdamOptimizer(0.1),
  "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
  "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.1),
  "adagrad": lambda: tf1.train.AdagradOptimizer(0.1),
}
_WRAPPERS = {
  "plain": lambda opt: opt,
  "fixed": lambda opt: tfl.MixedPrecisionLossScaleOptimizer(opt, 4.0),
  "dynamic": lambda opt: tfl.MixedPrecisionLossScaleOptimizer(
    opt, tfl.DynamicLossScale(8.0, 100)
  ),
  "contrib": lambda opt: tfl.contrib.LossScaleOptimizer(
    opt, tfl.contrib.ExponentialUpdateLossScaleManager(16.0, 100)
  ),
}
_STATE = {"scale", "good", "bad"}


class Model:
  """Optimizers with two variables each.

  Args:
    spec: (kind of optimizer, kind of wrapper) of each.
    session: None when eager.
  """

  def __init__(self, spec, session=None):
    self.spec, self.session, self.objects, self.parts = spec, session, {}, []
    for i, (inner, wrapper) in enumerate(spec):
      w = tf1.Variable(np.ones(2, "f"), name="w", use_resource=True)
      b = tf1.Variable(np.ones(3, "f"), name="b", use_resource=True)
      opt = _INNER[inner]()
      outer = _WRAPPERS[wrapper](opt)
      self.parts.append((outer, opt, w, b))
      self.objects |= {f"opt{i}": outer, f"w{i}": w, f"b{i}": b}

  def train(self):
    for outer, _, w, b in self.parts:
      self._minimize(outer, w, b)
    if self.session:
      self.session.run(tf1.global_variables_initializer())
    return self

  def _minimize(self, outer, w, b):
    def loss():
      return tf.reduce_sum(w * w) + tf.reduce_sum(b)

    outer.minimize(loss if self.session is None else loss(), var_list=[w, b])

  def roles(self):
    """Returns role -> variable; "0/w/m" is slot m of w of optimizer 0."""
    roles = {}
    for i, (outer, opt, w, b) in enumerate(self.parts):
      inner, wrapper = self.spec[i]
      roles |= {f"{i}/w": w, f"{i}/b": b}
      for name in opt.get_slot_names():
        for v, variable in (("w", w), ("b", b)):
          slot = opt.get_slot(variable, name)
          if slot is not None:
            roles[f"{i}/{v}/{name}"] = slot
      if inner == "adam":
        for name, power in zip(("b1", "b2"), opt._get_beta_accumulators()):
          if power is not None:
            roles[f"{i}/{name}"] = power
      if wrapper in ("dynamic", "contrib"):
        weights = getattr(outer._loss_scale, "manager", outer._loss_scale)
        names = ("scale", "good", "bad")
        for key, weight in weights._weights.items():
          (name,) = (n for n in names if n in key)
          roles[f"{i}/{name}"] = weight
    return roles

  def values(self):
    """Returns role -> value; all elements of a variable have one value."""
    result = {}
    for role, variable in self.roles().items():
      value = np.ravel(
        self.session.run(variable) if self.session else variable.numpy()
      )
      assert (value == value[0]).all(), role
      result[role] = float(value[0])
    return result

  def stamp(self, start):
    """Gives every variable a different value, `start` and more."""
    for i, (_, variable) in enumerate(sorted(self.roles().items())):
      value = np.full(variable.shape, start + i, variable.dtype.as_numpy_dtype)
      if self.session:
        op = variable.initializer
        self.session.run(op, {op.inputs[1]: value})
      else:
        variable.assign(value)
    return self

  def save(self, folder):
    scope = self.session.as_default if self.session else contextlib.nullcontext
    with scope():
      return tf.train.Checkpoint(**self.objects).save(str(folder / "ckpt"))

  def restore(self, path, **kwargs):
    return _restoring_objects.restore_objects(
      self.session, bundle.Bundle(path), self.objects, **kwargs
    )


@contextlib.contextmanager
def mode(graph):
  """Yields a session of a new graph, or None when eager."""
  if graph:
    with tf.Graph().as_default(), tf1.Session() as session:
      yield session
  else:
    yield None


def saved(spec, folder, graph=False):
  """Saves a model; returns the path and role -> value."""
  with mode(graph) as session:
    model = Model(spec, session).train().stamp(100)
    return model.save(folder), model.values()


def assert_complete(report, model):
  """Checks that every variable is in the report exactly once."""
  names = [
    name
    for part in (
      *(report.restored, report.bridged, report.initialized, report.kept),
    )
    for name in part
  ]
  assert len(names) == len(set(names)) == len(model.roles()), report
  assert set(report.proofs) == set(report.bridged)


def get_initial_values(spec, graph):
  """Returns role -> initial value."""
  with mode(graph) as session:
    model = Model(spec, session)
    if graph:
      return model.train().values()
    for _, opt, w, b in model.parts:
      opt._create_slots([w, b])
    return model.values()


@pytest.mark.parametrize("here", list(_WRAPPERS))
@pytest.mark.parametrize("there", list(_WRAPPERS))
def test_any_optimizers(there, here, tmp_path):
  """Each pair of wrappers, with a random choice of everything else."""
  rng = random.Random(f"{there} {here}")
  source = [(rng.choice(list(_INNER)), there)]
  if rng.random() < 0.5:
    source.append((rng.choice(list(_INNER)), rng.choice(list(_WRAPPERS))))
  same = rng.random() < 0.7
  target = [
    (inner if same else rng.choice(list(_INNER)), rng.choice(list(_WRAPPERS)))
    for inner, _ in source
  ]
  target[0] = (target[0][0], here)
  from_graph, graph = rng.random() < 0.5, rng.random() < 0.5
  missing = rng.choice(["error", "initialize"])
  path, truth = saved(source, tmp_path, from_graph)
  initial = get_initial_values(target, graph)
  with mode(graph) as session:
    model = Model(target, session).train().stamp(1000)
    before = model.values()
    try:
      report = model.restore(path, missing=missing)
    except checkpoint.CheckpointError:
      assert missing == "error" and model.values() == before
      wanted = {role for role in before if role.split("/")[1] not in _STATE}
      assert wanted - set(truth)
      return
    assert_complete(report, model)
    for role, value in model.values().items():
      if role in truth:
        assert value == truth[role], (role, report)
      elif role.endswith("bad") and role.replace("bad", "good") in truth:
        assert value == 0
      elif role in before:
        assert missing == "initialize" or role.split("/")[1] in _STATE
        assert value == initial[role], (role, report)


@pytest.mark.parametrize("graph", [False, True])
def test_slots_that_are_not_there(graph, tmp_path):
  path, truth = saved([("sgd", "dynamic"), ("adam", "plain")], tmp_path)
  with mode(graph) as session:
    spec = [("adagrad", "dynamic"), ("adam", "dynamic")]
    model = Model(spec, session).train().stamp(1000)
    before = model.values()
    what = "slot 'accumulator' of opt0/base_optimizer for w0"
    with pytest.raises(checkpoint.CheckpointError, match=what) as error:
      model.restore(path)
    assert "missing='initialize'" in str(error.value)
    assert model.values() == before
    report = model.restore(path, missing="initialize")
    assert_complete(report, model)
    assert set(report.initialized) == {
      "w0/.OPTIMIZER_SLOT/opt0/base_optimizer/accumulator",
      "b0/.OPTIMIZER_SLOT/opt0/base_optimizer/accumulator",
      "opt1/loss_scale/current_loss_scale",
      "opt1/loss_scale/good_steps",
    }
    values = model.values()
    assert values["0/w/accumulator"] == np.float32(0.1)
    assert (values["1/scale"], values["1/good"]) == (8.0, 0)
    assert values["1/w/m"] == truth["1/w/m"] and values["1/b1"] == truth["1/b1"]


def test_a_traced_function_goes_on_with_its_slots(tmp_path):
  path, _ = saved([("sgd", "plain")], tmp_path)
  model = Model([("momentum", "plain")])
  step = tf.function(lambda: model._minimize(*_outer_and_variables(model)))
  step()
  slot = model.roles()["0/w/momentum"]
  model.restore(path, missing="initialize")
  assert model.roles()["0/w/momentum"] is slot and not slot.numpy().any()
  step()
  assert slot.numpy().any()


def _outer_and_variables(model):
  outer, _, w, b = model.parts[0]
  return outer, w, b


def test_what_cannot_be_initialized_eagerly(tmp_path):
  w, x = tf.Variable(1.0), tf.Variable(2.0)
  path = tf.train.Checkpoint(w=w).save(str(tmp_path / "ckpt"))
  report = _restoring_objects.restore_objects(
    None, bundle.Bundle(path), {"w": w, "x": x}, "initialize"
  )
  assert list(report.kept) == ["x"] and list(report.restored) == ["w"]
  with tf.Graph().as_default(), tf1.Session() as session:
    x = tf1.Variable(2.0, use_resource=True)
    session.run(x.assign(3.0))
    report = _restoring_objects.restore_objects(
      session, bundle.Bundle(path), {"x": x}, "initialize"
    )
    assert list(report.initialized) == ["x"] and session.run(x) == 2.0
  with pytest.raises(ValueError, match="missing must be 'error' or"):
    checkpoint.restore(None, path, {"w": w}, missing="keep")


def test_a_scale_of_an_unknown_optimizer_is_no_new_scale(tmp_path):
  """The checkpoint may have the loss scale by another path."""
  path, _ = saved([("sgd", "dynamic")], tmp_path)
  model = Model([("sgd", "dynamic")]).train()
  objects = {"optimizer": model.objects["opt0"], "w0": model.objects["w0"]}
  with pytest.raises(checkpoint.CheckpointError, match="loss_scale"):
    checkpoint.restore(None, path, objects)


def test_slots_of_variables_that_are_no_objects(tmp_path):
  path, _ = saved([("adam", "dynamic")], tmp_path)
  model = Model([("adam", "dynamic")]).train().stamp(1000)
  del model.objects["b0"]
  before = model.values()
  report = model.restore(path)
  assert len(report.kept) == 2 and "not among the objects" in str(report)
  for role in ("0/b", "0/b/m", "0/b/v"):
    assert model.values()[role] == before[role]
  assert "b0/.ATTRIBUTES/VARIABLE_VALUE" in report.unused


def test_slots_that_are_made_by_restoring(tmp_path):
  path, truth = saved([("adam", "dynamic")], tmp_path)
  model = Model([("adam", "plain")])
  report = model.restore(path)
  assert "w0/.OPTIMIZER_SLOT/opt0/m" in report.bridged
  assert_complete(report, model)
  assert model.values()["0/w/m"] == truth["0/w/m"]


@pytest.mark.any_release
def test_what_is_one_there_and_two_here(tmp_path):
  w = tf.Variable(1.0)
  path = tf.train.Checkpoint(a=w, b=w).save(str(tmp_path / "ckpt"))
  a, b = tf.Variable(2.0), tf.Variable(3.0)
  with pytest.raises(checkpoint.CheckpointError, match="a and b are two"):
    checkpoint.restore(None, path, {"a": a, "b": b})
  assert (float(a), float(b)) == (2, 3)
  for objects in ({"a": a}, {"b": b}):
    checkpoint.restore(None, path, objects)
  assert (float(a), float(b)) == (1, 1)


@pytest.mark.any_release
def test_what_is_two_there_and_one_here(tmp_path):
  a, b, w = tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3.0)
  path = tf.train.Checkpoint(a=a, b=b).save(str(tmp_path / "ckpt"))
  with pytest.raises(checkpoint.CheckpointError, match="a is one variable"):
    checkpoint.restore(None, path, {"a": w, "b": w})
  assert float(w) == 3
  checkpoint.restore(None, path, {"b": w})
  assert float(w) == 2


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("fixed", [0, 1])
def test_a_loss_scale_that_two_had(fixed, graph, tmp_path):
  """If one optimizer has a fixed scale now, the other gets the scale."""
  scale = tfl.DynamicLossScale(8.0)
  opts = [
    tfl.MixedPrecisionLossScaleOptimizer(_INNER["sgd"](), scale)
    for _ in range(2)
  ]
  scale._current_loss_scale.assign(512.0)
  root = tf.train.Checkpoint(a=opts[0], b=opts[1])
  path = root.save(str(tmp_path / "ckpt"))
  with mode(graph) as session:
    opts = [_WRAPPERS["dynamic"](_INNER["sgd"]()) for _ in range(2)]
    objects = dict(zip("ab", opts))
    with pytest.raises(checkpoint.CheckpointError, match="two variables here"):
      checkpoint.restore(session, path, objects)
    objects["ab"[fixed]] = _WRAPPERS["fixed"](_INNER["sgd"]())
    report = checkpoint.restore(session, path, objects)
    got = opts[1 - fixed]._loss_scale()
    assert float(session.run(got) if session else got) == 512.0
    assert len(report.restored) == 2


@pytest.mark.parametrize("first", ["alias", "opt"])
@pytest.mark.parametrize("source", ["plain", "dynamic"])
def test_an_optimizer_by_two_paths(first, source, tmp_path):
  """The wrapped optimizer has a path of its own besides the wrapper's."""

  def objects_of(model):
    outer, opt, w, b = model.parts[0]
    named = {"alias": opt, "opt": outer}
    rest = {"w": w, "b": b}
    return {first: named[first]} | named | rest

  model = Model([("adam", source)]).train().stamp(100)
  truth = model.values()
  root = tf.train.Checkpoint(**objects_of(model))
  path = root.save(str(tmp_path / "ckpt"))
  for target in ("plain", "dynamic"):
    model = Model([("adam", target)]).train().stamp(1000)
    report = checkpoint.restore(None, path, objects_of(model))
    assert_complete(report, model)
    for role, value in model.values().items():
      assert value == truth.get(role, value), role
      assert value < 1000, role


def test_a_trackable_as_the_objects(tmp_path):
  def made(value):
    module = tf.Module()
    module.w = tf.Variable(value)
    return module

  path = tf.train.Checkpoint(made(1.0)).save(str(tmp_path / "ckpt"))
  for wrap in (lambda module: module, tf.train.Checkpoint):
    module = made(2.0)
    report = checkpoint.restore(None, path, wrap(module))
    assert report.restored == {"w": "w/.ATTRIBUTES/VARIABLE_VALUE"}
    assert float(module.w) == 1.0
  path = tf.train.Checkpoint(made(1.0), x=tf.Variable(5.0)).save(
    str(tmp_path / "ckpt")
  )
  x = tf.Variable(6.0)
  report = checkpoint.restore(None, path, tf.train.Checkpoint(module, x=x))
  assert float(x) == 5.0 and set(report.restored) == {"w", "x"}


@pytest.mark.any_release
def test_a_graph_needs_a_session(tmp_path):
  path, _ = saved([("sgd", "plain")], tmp_path)
  with tf.Graph().as_default():
    x = tf1.Variable(np.ones(2, "f"), use_resource=True)
    with pytest.raises(ValueError, match="session is None"):
      checkpoint.restore(None, path, {"w0": x})


class Templates:
  """Two optimizers that are saved by name and, as a template, by object."""

  def __init__(self, folder, scopes=("", "")):
    self.folder, self.scopes = folder, scopes

  def build(self, swapped=False, wrap=_WRAPPERS["dynamic"], inner="sgd"):
    """Returns the objects; `swapped` swaps their paths, not their names."""
    made = {}
    for i, scope in enumerate(self.scopes):
      with tf1.variable_scope(f"net{i}"):
        w = tf1.get_variable("w", [2], use_resource=True)
      with tf1.name_scope(scope or None):
        opt = wrap(_INNER[inner]())
        opt.minimize(tf.reduce_sum(w), var_list=[w])
      made[f"x{i}"], made[f"w{i}"] = opt, w
    if swapped:
      made |= {"a": made.pop("x1"), "b": made.pop("x0")}
    else:
      made |= {"a": made.pop("x0"), "b": made.pop("x1")}
    return made

  def run(self, **kwargs):
    """Saves by name, with different values; returns the path and the values."""
    values = {}
    with tf.Graph().as_default(), tf1.Session() as session:
      self.build(**kwargs)
      session.run(tf1.global_variables_initializer())
      for i, v in enumerate(tf1.global_variables()):
        value = np.full(v.shape, i + 1, v.dtype.as_numpy_dtype)
        session.run(v.initializer, {v.initializer.inputs[1]: value})
        values[v.op.name] = i + 1
      return tf1.train.Saver().save(session, str(self.folder / "names")), values

  def template(self, **kwargs):
    """Saves by object with initial values; returns the path."""
    with tf.Graph().as_default(), tf1.Session() as session:
      made = self.build(**kwargs)
      session.run(tf1.global_variables_initializer())
      root = tf.train.Checkpoint(**made)
      return root.save(str(self.folder / "template"))

  def convert(self, names, template):
    """Converts by the template; returns name -> value."""
    new = str(self.folder / "new")
    checkpoint.convert(names, new, "object", template=template)
    return full_names_and_values(new)


def full_names_and_values(path):
  """Returns the full name of each variable in the object graph -> its value."""
  graph = ObjectGraph.read(bundle.Bundle(path))
  reader = tf.train.load_checkpoint(path)
  return {
    attribute.full_name: float(np.ravel(reader.get_tensor(attribute.key))[0])
    for _, attribute in graph.list_attributes()
    if attribute.full_name and not attribute.key.startswith("save_counter")
  }


@pytest.mark.parametrize(
  ("swapped", "scopes", "inner"),
  [
    (False, ("", ""), "adam"),
    (True, ("", ""), "sgd"),
    (False, ("gen", "disc"), "sgd"),
    (True, ("gen", "disc"), "adam"),
  ],
)
def test_templates_go_by_names(swapped, scopes, inner, tmp_path):
  case = Templates(tmp_path, scopes)
  names, values = case.run(inner=inner)
  template = case.template(swapped=swapped, inner=inner)
  assert case.convert(names, template) == values


@pytest.mark.any_release
@pytest.mark.parametrize("scopes", [("", ""), ("gen", "disc")])
def test_templates_of_another_api(scopes, tmp_path):
  """One loss scale in a scope is found; two in one scope are an error."""
  case = Templates(tmp_path, scopes)
  names, values = case.run(wrap=_WRAPPERS["contrib"])
  template = case.template(swapped=True)
  if scopes == ("", ""):
    with pytest.raises(checkpoint.CheckpointError) as error:
      case.convert(names, template)
    for name in ("a/loss_scale", "b/loss_scale", "loss_scale_1", "--map HERE"):
      assert name in str(error.value)
    return
  done = case.convert(names, template)
  for scope in scopes:
    expected = values[f"{scope}/loss_scale"]
    (got,) = (
      v
      for k, v in done.items()
      if k.startswith(scope) and k.endswith("current_loss_scale")
    )
    assert got == expected


def eager_template(folder, wrapper="dynamic", inner="adam"):
  """Saves two optimizers whose variables have equal names; returns the path."""
  model = Model([(inner, wrapper)] * 2).train()
  return model.save(folder)


@pytest.mark.any_release
def test_templates_with_names_that_are_not_unique(tmp_path):
  case = Templates(tmp_path)
  names, _ = case.run()
  template = eager_template(tmp_path, inner="sgd")
  with pytest.raises(checkpoint.CheckpointError) as error:
    case.convert(names, template)
  for name in ("opt0/loss_scale", "opt1/loss_scale", "current_loss_scale_1"):
    assert name in str(error.value)
  w = tf.Variable(1.0)
  path = tf.train.Checkpoint(a=w, b=tf.Variable(2.0)).save(
    str(tmp_path / "two")
  )
  with tf.Graph().as_default(), tf1.Session() as session:
    tf1.Variable(3.0, name="Variable", use_resource=True)
    session.run(tf1.global_variables_initializer())
    names = tf1.train.Saver().save(session, str(tmp_path / "one"))
  with pytest.raises(checkpoint.CheckpointError, match=r"a \(Variable\), b"):
    case.convert(names, path)


@pytest.mark.any_release
def test_the_user_decides(tmp_path):
  case = Templates(tmp_path)
  names, _ = case.run()
  template = bundle.Bundle(eager_template(tmp_path, inner="sgd"))
  variables = by_object.list_by_name(bundle.Bundle(names))
  mapping = {
    "w0": "net1/w",
    "w1/.ATTRIBUTES/VARIABLE_VALUE": "net0/w",
    "opt0/loss_scale/good_steps": "good_steps_1",
  }
  with pytest.raises(checkpoint.CheckpointError, match=r"b0 \(b\)"):
    by_object.fill_template(variables, template, False, mapping)
  mapping |= {"b0": "net0/w", "b1": "net1/w"}
  with pytest.raises(checkpoint.CheckpointError, match=r"\[3\] in the templ"):
    by_object.fill_template(variables, template, False, mapping)
  made = tf.train.Checkpoint(
    a=_WRAPPERS["dynamic"](_INNER["sgd"]()),
    b=_WRAPPERS["dynamic"](_INNER["sgd"]()),
    w=tf.Variable([1.0, 1.0], name="w"),
    v=tf.Variable([1.0, 1.0], name="w"),
  )
  template = bundle.Bundle(made.save(str(tmp_path / "other")))
  mapping = {
    "w": "net1/w",
    "v": "net0/w",
    "a/loss_scale/good_steps": "good_steps_1",
  }
  sources = by_object.fill_template(variables, template, False, mapping)
  got = {
    key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): getattr(source, "name", "")
    for key, source in sources.items()
  }
  assert got["w"] == "net1/w" and got["v"] == "net0/w"
  assert got["a/loss_scale/current_loss_scale"] == "current_loss_scale_1"
  assert got["b/loss_scale/current_loss_scale"] == "current_loss_scale"
  for wrong, what in (
    ({"x": "net0/w"}, "x is neither a variable's name nor its path"),
    ({"good_steps": "good_steps"}, "the name of several variables"),
    ({"w": "net7/w"}, "net7/w is not in the checkpoint .*nearest"),
  ):
    with pytest.raises(checkpoint.CheckpointError, match=what):
      by_object.fill_template(variables, template, False, wrong)


@pytest.mark.parametrize("optimizers", [1, 2])
def test_powers_of_another_control_flow(optimizers, tmp_path):
  """One optimizer's powers are found; of two, only with the MetaGraph."""
  case = Templates(tmp_path, ("",) * optimizers)
  case.build = lambda: build_some(case)
  with helpers.control_flow(False):
    names, values = case.run()
  with helpers.control_flow(True):
    template = case.template()
  done = case.convert(names, template)
  assert done["beta1_power"] == values["cond_1/beta1_power"]
  if optimizers == 1:
    return
  assert done["beta1_power_1"] == values["cond_3/beta1_power"]
  os.remove(f"{names}.meta")
  with pytest.raises(checkpoint.CheckpointError, match="cond_1/beta1_power"):
    case.convert(names, template)


def build_some(case):
  """Builds optimizers with a dynamic loss scale; returns name -> object."""
  made = {}
  for i, _ in enumerate(case.scopes):
    w = tf1.get_variable(f"w{i}", [2], use_resource=True)
    opt = _WRAPPERS["dynamic"](_INNER["adam"]())
    opt.minimize(tf.reduce_sum(w), var_list=[w])
    made |= {f"opt{i}": opt, f"w{i}": w}
  return made


if __name__ == "__main__":
  helpers.main()
