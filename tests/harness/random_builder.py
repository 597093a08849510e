# SPDX-License-Identifier: Apache-2.0
"""Builds the programs of `random_programs` in graphs.

Each variable has an identity, which comes from the variable's place in the
program and not from its name. So identities show without doubt which tensor of
a checkpoint a variable should get.

This module also runs on Python 3.7 and TensorFlow 1.15.
"""

from __future__ import annotations

import contextlib
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from switches import control_flow
import tensorflow as tf

tf1 = tf.compat.v1


class _Custom(tf1.train.Optimizer):
  """A user's optimizer with a slot and a variable that is no slot."""

  _EXTRA = "schedule"

  def __init__(self, rate) -> None:
    super().__init__(False, type(self).__name__.strip("_"))
    self._rate = rate

  def _create_slots(self, var_list):
    first = min(var_list, key=lambda v: v.name)
    self._create_non_slot_variable(
      initial_value=0.5, name=self._EXTRA, colocate_with=first
    )
    for v in var_list:
      self._zeros_slot(v, "m", self._name)

  def extra(self):
    """Returns the variable that is no slot."""
    with tf.init_scope():  # A cond has a graph of its own.
      graph = tf1.get_default_graph()
    return self._get_non_slot_variable(self._EXTRA, graph=graph)

  def _apply(self, grad, var):
    m = self.get_slot(var, "m")
    step = tf.cast(self.extra(), var.dtype.base_dtype) * grad * self._rate
    with tf.control_dependencies([m.assign_add(grad)]):
      return var.assign_sub(step).op

  def _apply_sparse(self, grad, var):
    return self._apply(tf.convert_to_tensor(grad), var)

  def _resource_apply_sparse(self, grad, handle, indices):
    shape = tf.constant(handle.shape.as_list(), indices.dtype)
    slices = tf.IndexedSlices(grad, indices, shape)
    return self._apply(tf.convert_to_tensor(slices), handle)

  _apply_dense = _resource_apply_dense = _apply

  def _finish(self, update_ops, name_scope):
    with tf.control_dependencies(update_ops):
      updated = self.extra().assign(self.extra() * 0.5)
    return tf.group(updated, *update_ops, name=name_scope)


class _Maxed(_Custom):
  """An optimizer with one of Adam's powers, as AdaMax has in TensorFlow 1."""

  _EXTRA = "beta1_power"


# Constructors that take a learning rate, which differs for each optimizer.
_INNER = {
  "adam": tf1.train.AdamOptimizer,
  "momentum": lambda rate: tf1.train.MomentumOptimizer(rate, 0.75),
  "sgd": tf1.train.GradientDescentOptimizer,
  "rmsprop": tf1.train.RMSPropOptimizer,
  "adagrad": tf1.train.AdagradOptimizer,
  "maxed": _Maxed,
  "custom": _Custom,
}


class Api:
  """An API of loss scaling.

  Attributes:
    name: 'tfl' (this package), 'tf' (TensorFlow 2's own API) or 'tf1' (that of
      TensorFlow 1.15).
  """

  def __init__(self, name: str) -> None:
    self.name = name
    if name == "tf1":
      from tensorflow.contrib import mixed_precision as contrib

      self._compat, self._contrib = tf1.train.experimental, contrib
    else:
      import tf_compat_lossscale as tfl

      self._contrib = tfl.contrib
      self._compat = tfl if name == "tfl" else tf1.mixed_precision

  def scale(self, kind: str):
    """Creates a loss scale, or the manager of a loss scale."""
    if kind == "contrib":
      return self._contrib.ExponentialUpdateLossScaleManager(64.0, 10)
    if kind == "fixed":
      return self._compat.FixedLossScale(64.0)
    return self._compat.DynamicLossScale(64.0, 10)

  def wrap(self, kind: str, opt, scale):
    """Wraps an optimizer."""
    if kind == "contrib":
      return self._contrib.LossScaleOptimizer(opt, scale)
    return self._compat.MixedPrecisionLossScaleOptimizer(opt, scale)

  def can(self, program: dict, variant: dict) -> bool:
    """Returns whether the API can build a variant of a program."""
    return self.name == "tfl" or program["resource"] or not variant["v2"]


class _Builder:
  """Builds a program in the current graph.

  Attributes:
    made: Identity -> variable.
    objects: The optimizers, by their keys in the program.
    train: The ops that apply gradients.
  """

  def __init__(self, program: dict, variant: dict, api: Api) -> None:
    self.made = {}
    self.objects = {}
    self.train = []
    self._program, self._variant, self._api = program, variant, api
    self._scales = {}
    self._kinds = {
      key: kind
      for key, kind in variant["kinds"].items()
      if key not in variant["dropped"]
    }
    # A variant may create the optimizers in another order.
    order = iter(variant.get("order", ()))
    for what, key in program["steps"]:
      if what == "optimizer":
        key = next(order, key)
      getattr(self, f"_add_{what}")(key)
    for key, (kind, scale) in self._scales.items():
      self._note_scale(key, kind, scale)

  def _note(self, identity, variable) -> None:
    assert identity not in self.made, identity
    self.made[identity] = variable

  def _variable(self, how, name, value, dtype, trainable):
    resource = self._program["resource"]
    value = np.asarray(value, dtype)
    if how == "get":
      return tf1.get_variable(
        name, initializer=value, trainable=trainable, use_resource=resource
      )
    return tf1.Variable(
      value, name=name, trainable=trainable, use_resource=resource
    )

  def _add_weight(self, key) -> None:
    spec = self._program["weights"][key]
    self._note(
      ("weight", key),
      self._variable(spec["how"], spec["name"], [0.5, 0.5], "float32", True),
    )

  def _add_user(self, key) -> None:
    spec = self._program["users"][key]
    self._note(
      ("user", key),
      self._variable(spec["how"], spec["name"], 7, spec["dtype"], False),
    )

  def _add_step(self, key) -> None:
    del key
    with tf1.variable_scope(
      tf1.get_variable_scope(), use_resource=self._program["resource"]
    ):
      self._note(("step",), tf1.train.get_or_create_global_step())

  def _add_cond(self, key) -> None:
    del key
    x = tf1.placeholder_with_default(1.0, [])
    tf1.cond(x > 0.5, lambda: x + 1.0, lambda: x - 1.0)

  def _add_ema(self, key) -> None:
    del key
    ema = tf1.train.ExponentialMovingAverage(0.5)
    ema.apply([self.made["weight", key] for key in self._program["ema"]])
    for key in self._program["ema"]:
      self._note(("ema", key), ema.average(self.made["weight", key]))

  def _add_scale(self, key) -> None:
    if key in self._scales:
      return
    for opt, kind in sorted(self._kinds.items()):
      spec = self._program["optimizers"][opt]
      if spec["scale"] == key and kind != "plain":
        self._scales[key] = (kind, self._api.scale(kind))
        return

  def _term(self, key, trained):
    weight = ("weight", key) in self.made
    variable = self.made["weight" if weight else "user", key]
    value = tf.identity(variable)
    if weight and trained and self._program["weights"][key]["sparse"]:
      value = tf.gather(variable, [0, 0])
    return tf.reduce_sum(tf.cast(value, tf.float32))

  def _add_optimizer(self, key) -> None:
    if key not in self._kinds:
      return
    spec, kind = self._program["optimizers"][key], self._kinds[key]
    with contextlib.ExitStack() as stack:
      for what, name in spec["scope"]:
        scope = tf1.name_scope if what == "name" else tf1.variable_scope
        stack.enter_context(scope(name))
      inner = opt = _INNER[spec["kind"]](2.0 ** -int(key[3:]) / 8)
      if kind != "plain":
        self._add_scale(spec["scale"])
        opt = self._api.wrap(kind, inner, self._scales[spec["scale"]][1])
      terms = [self._term(name, True) for name in spec["trains"]]
      terms += [
        self._term(name, False)
        for name in spec["reads"]
        if name not in spec["trains"]
      ]
      trained = [
        self.made["weight" if ("weight", name) in self.made else "user", name]
        for name in spec["trains"]
      ]
      gradients = opt.compute_gradients(tf.add_n(terms), trained)
      step = self.made["step",] if spec["step"] else None

      def apply():
        return opt.apply_gradients(gradients, step)

      if spec.get("guarded") and kind == "plain":
        # The program's own cond, which has nothing to do with a loss scale.
        x = tf1.placeholder_with_default(1.0, [])
        self.train.append(tf1.cond(x > 0.5, apply, tf.no_op))
      else:
        self.train.append(apply())
    self.objects[key] = opt
    for name, variable in zip(spec["trains"], trained):
      for slot in inner.get_slot_names():
        found = inner.get_slot(variable, slot)
        if found is not None:
          self._note(("slot", key, name, slot), found)
    if isinstance(inner, tf1.train.AdamOptimizer):
      for i, power in enumerate(inner._get_beta_accumulators()):
        self._note(("power", key, str(i + 1)), power)
    elif isinstance(inner, _Custom):
      self._note(("power", key, "1"), inner.extra())

  def _note_scale(self, key, kind, scale) -> None:
    if kind == "fixed":
      return
    value = "_loss_scale" if kind == "contrib" else "_current_loss_scale"
    self._note(("scale", key, "value"), getattr(scale, value))
    self._note(("scale", key, "good"), scale._num_good_steps)
    if kind == "contrib":
      self._note(("scale", key, "bad"), scale._num_bad_steps)


def build(program: dict, variant: dict, api: Api):
  """Builds a program in the current graph, under the current control flow.

  Returns:
    A dict of identity -> variable for all global variables, and a dict of the
    keyword arguments to pass to `tf.train.Checkpoint`.
  """
  builder = _Builder(program, variant, api)
  variables = {id(v) for v in tf1.global_variables()}
  assert len(variables) == len(builder.made), (
    sorted(v.op.name for v in tf1.global_variables()),
    sorted(v.op.name for v in builder.made.values()),
  )
  names = {v.op.name for v in tf1.global_variables()}
  assert names == {v.op.name for v in builder.made.values()}
  assert len(names) == len(variables)
  objects = dict(builder.objects)
  for identity, variable in builder.made.items():
    if identity[0] in ("weight", "user", "ema", "step"):
      objects["_".join(identity)] = variable
  return builder.made, objects


class Built:
  """A variant of a program, in a new graph.

  Attributes:
    graph: The graph.
    made: Identity -> variable.
    objects: The keyword arguments to pass to `tf.train.Checkpoint`.
  """

  def __init__(self, program: dict, variant: dict, api: Api) -> None:
    self.graph = tf.Graph()
    with control_flow(variant["v2"]), self.graph.as_default():
      self.made, self.objects = build(program, variant, api)
    self._initial = None
    self._saver = None

  def initial(self) -> dict:
    """Returns identity -> number, as the variables' initializers set them."""
    if self._initial is None:
      with self.graph.as_default(), open_session(self.graph) as session:
        # The initializer of an average may read the weight.
        weights = [v for k, v in self.made.items() if k[0] == "weight"]
        session.run([v.initializer for v in weights])
        session.run(tf1.global_variables_initializer())
        self._initial = read_numbers(session, self.made)
    return self._initial

  def saver(self):
    """Returns TensorFlow's own `Saver` of all variables."""
    if self._saver is None:
      with self.graph.as_default():
        self._saver = tf1.train.Saver()
    return self._saver


class Graphs:
  """A cache of programs in graphs, which are built when they are first needed.

  Building a graph takes longer than all other parts of a check, and checks of a
  program often need the same variant. A check changes no name of a variable and
  no op of the program. A check only adds ops, as does a program that restores
  several times.
  """

  def __init__(self) -> None:
    self._built = {}

  def get(self, program: dict, variant: dict, api: Api) -> Built:
    """Returns a variant of a program, in its graph."""
    key = json.dumps([program, variant, api.name], sort_keys=True)
    if key not in self._built:
      self._built[key] = Built(program, variant, api)
    return self._built[key]


def open_session(graph):
  """Returns a session that does not optimize graphs, as few steps run in it."""
  config = tf1.ConfigProto()
  config.graph_options.rewrite_options.disable_meta_optimizer = True
  config.graph_options.optimizer_options.opt_level = -1
  return tf1.Session(graph=graph, config=config)


def set_values(session, values) -> None:
  """Sets variables to numbers, given as (variable, number) pairs."""
  pending = list(values)
  while pending:
    feeds, ops, later = {}, [], []
    for variable, number in pending:
      tensor = variable.initializer.inputs[1]
      if tensor.name in feeds:
        later.append((variable, number))
      else:
        dtype = variable.dtype.base_dtype.as_numpy_dtype
        feeds[tensor.name] = np.full(variable.shape.as_list(), number, dtype)
        ops.append(variable.initializer)
    session.run(ops, feeds)
    pending = later


def read_numbers(session, made) -> dict:
  """Returns identity -> number; None if a variable's elements differ."""
  values = session.run(made)
  return {
    identity: float(np.ravel(value)[0])
    if len(set(np.ravel(value).tolist())) == 1
    else None
    for identity, value in values.items()
  }
