# SPDX-License-Identifier: Apache-2.0
"""Tests that conversions by a template match values and objects, or fail."""

import os

import helpers
import numpy as np
from object_models import INNER
from object_models import Model
from object_models import WRAPPERS
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import inventory
from tf_compat_lossscale.checkpoint.layouts import templates

tf1 = tf.compat.v1


class Templates:
  """A model of two optimizers, saved by name and by object as a template."""

  def __init__(self, folder, scopes=("", "")):
    self.folder, self.scopes = folder, scopes

  def build(self, swapped=False, wrap=WRAPPERS["dynamic"], inner="sgd"):
    """Builds the model; returns path -> object. `swapped` swaps the paths."""
    made = {}
    for i, scope in enumerate(self.scopes):
      with tf1.variable_scope(f"net{i}"):
        w = tf1.get_variable("w", [2], use_resource=True)
      with tf1.name_scope(scope or None):
        opt = wrap(INNER[inner]())
        opt.minimize(tf.reduce_sum(w), var_list=[w])
      made[f"x{i}"], made[f"w{i}"] = opt, w
    if swapped:
      made |= {"a": made.pop("x1"), "b": made.pop("x0")}
    else:
      made |= {"a": made.pop("x0"), "b": made.pop("x1")}
    return made

  def run(self, **kwargs):
    """Saves different values by name; returns the path and name -> value."""
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
  """Returns full name -> value for the variables in an object graph."""
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
  """Checks loss scales in two scopes, and the error for two in one scope."""
  case = Templates(tmp_path, scopes)
  names, values = case.run(wrap=WRAPPERS["contrib"])
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


def fill(variables, template, mapping):
  specs = {name: source.spec for name, source in variables.items()}
  there = inventory.Inventory(specs, lambda: None)
  return templates.fill_template(variables, there, template, mapping)


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
    fill(variables, template, mapping)
  mapping |= {"b0": "net0/w", "b1": "net1/w"}
  with pytest.raises(checkpoint.CheckpointError, match=r"\[3\] in the templ"):
    fill(variables, template, mapping)
  made = tf.train.Checkpoint(
    a=WRAPPERS["dynamic"](INNER["sgd"]()),
    b=WRAPPERS["dynamic"](INNER["sgd"]()),
    w=tf.Variable([1.0, 1.0], name="w"),
    v=tf.Variable([1.0, 1.0], name="w"),
  )
  template = bundle.Bundle(made.save(str(tmp_path / "other")))
  mapping = {
    "w": "net1/w",
    "v": "net0/w",
    "a/loss_scale/good_steps": "good_steps_1",
  }
  sources = fill(variables, template, mapping).sources
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
      fill(variables, template, wrong)


@pytest.mark.parametrize("optimizers", [1, 2])
def test_powers_of_another_control_flow(optimizers, tmp_path):
  """Checks that powers of two optimizers are found by the MetaGraph alone."""
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
    opt = WRAPPERS["dynamic"](INNER["adam"]())
    opt.minimize(tf.reduce_sum(w), var_list=[w])
    made |= {f"opt{i}": opt, f"w{i}": w}
  return made


if __name__ == "__main__":
  helpers.main()
