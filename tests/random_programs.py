# SPDX-License-Identifier: Apache-2.0
"""Training programs drawn by chance, and whether their checkpoints carry over.

A program is plain data: variables, optimizers, scopes and conds in the order in
which they are made. A variant says how its optimizers are wrapped, and under
which control flow it is built. Every variable has an identity that comes from
how it was made, never from its name, so that it is known without a doubt which
tensor of a checkpoint a variable should get.

Programs are built and saved under TensorFlow 1.15, too; they are restored and
converted under TensorFlow 2.

  python tests/random_programs.py --first=0 --count=1000
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import inspect
import json
import os
import random
import re
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from switches import control_flow
import tensorflow as tf

tf1 = tf.compat.v1

KINDS = ("plain", "dynamic", "fixed", "contrib")
SCALING = ("dynamic", "contrib")  # Those that have variables.
SAVED, BEFORE = 1000, 5000  # From where values count.
# Names of variables that optimizers and loss scales make, and their dtypes.
_INTERNAL = {
  "loss_scale": ("float32", "float32", "float64"),
  "current_loss_scale": ("float32", "float32", "float64"),
  "good_steps": ("int64", "int32"),
  "bad_steps": ("int32", "int32", "int64"),
  "beta1_power": ("float32",),
  "beta2_power": ("float32",),
  "cond/w": ("float32",),
  "cond_1/w": ("float32",),
  "cond/beta1_power": ("float32",),
  "cond_1/beta1_power": ("float32",),
  "cond_1/beta2_power": ("float32",),
}
_LIKE_INTERNAL = re.compile(
  r"(current_loss_scale|loss_scale|good_steps|bad_steps|beta\d_power|schedule)"
  r"(_\d+)?"
)


class _Custom(tf1.train.Optimizer):
  """An optimizer of somebody's own: a slot and a variable without a slot."""

  _EXTRA = "schedule"

  def __init__(self) -> None:
    super().__init__(False, type(self).__name__.strip("_"))

  def _create_slots(self, var_list):
    first = min(var_list, key=lambda v: v.name)
    self._create_non_slot_variable(
      initial_value=0.5, name=self._EXTRA, colocate_with=first
    )
    for v in var_list:
      self._zeros_slot(v, "m", self._name)

  def extra(self):
    """Returns the variable without a slot."""
    with tf.init_scope():  # Which a cond's own graph is not.
      graph = tf1.get_default_graph()
    return self._get_non_slot_variable(self._EXTRA, graph=graph)

  def _apply(self, grad, var):
    m = self.get_slot(var, "m")
    step = tf.cast(self.extra(), var.dtype.base_dtype) * grad
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
  """As AdaMax in TensorFlow 1: one of Adam's powers."""

  _EXTRA = "beta1_power"


_INNER = {
  "adam": lambda: tf1.train.AdamOptimizer(0.125),
  "momentum": lambda: tf1.train.MomentumOptimizer(0.125, 0.5),
  "sgd": lambda: tf1.train.GradientDescentOptimizer(0.125),
  "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.125),
  "adagrad": lambda: tf1.train.AdagradOptimizer(0.125),
  "maxed": _Maxed,
  "custom": _Custom,
}
_INNER_DRAWN = ["adam"] * 8 + ["maxed", "maxed", "custom"] + sorted(_INNER)


class Api:
  """What the builder needs of an API of loss scaling.

  Attributes:
    name: 'tfl', 'tf' (TensorFlow's own of today) or 'tf1' (1.15's).
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
    """Makes a loss scale, or a manager of one."""
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
    """Whether the API builds that at all."""
    return self.name == "tfl" or program["resource"] or not variant["v2"]


def _scopes(rng: random.Random, count: int) -> list:
  """Draws the scopes that the optimizers are made in."""

  def one() -> list:
    return rng.choice(
      [
        [],
        [["name", "train_gen"]],
        [["name", "train_dis"]],
        [["variable", "tower"]],
        [["variable", "tower"], ["name", "train"]],
        [["name", "outer"], ["name", "inner"]],
        [["name", "cond"]],
        [["name", "a"], ["variable", "b"]],
      ]
    )

  scheme = rng.choice(["none", "none", "anti", "anti", "equal", "some", "some"])
  if scheme == "none":
    return [[]] * count
  if scheme == "anti":
    what = rng.choice(["name", "name", "variable"])
    names = rng.choice(
      [("s2", "s10", "s1"), ("z", "m", "a"), ("train_gen", "train_dis", "b")]
    )
    return [[[what, name]] for name in names[:count]]
  if scheme == "equal":
    same = rng.choice([one(), [["name", "train/"]], [["name", "train"]]])
    return [same] * count
  return [one() for _ in range(count)]


def program_of(seed: int) -> dict:
  """Draws a program: plain data that can be written as JSON."""
  rng = random.Random(seed)
  count = rng.choice([1, 2, 2, 2, 2, 3, 3])
  program = {
    "seed": seed,
    "resource": rng.random() < 0.65,
    "weights": {},
    "optimizers": {},
    "users": {},
    "ema": [],
    "steps": [],
  }
  style = rng.choice(["gan", "gan", "same", "split", "overlap"])
  scopes = _scopes(rng, count)
  prefixes = [f"{names[-1][1].strip('/')}/" for names in scopes if names]
  sizes = [
    rng.choice([1, 1, 2]) for _ in range(count if style != "same" else 1)
  ]
  parts = []
  for i, size in enumerate(sizes):
    scope = ["gen/", "dis/", "enc/"][i] if style == "gan" else ""
    part = []
    for _ in range(size):
      key = f"w{len(program['weights'])}"
      program["weights"][key] = {
        "name": scope + key,
        "how": rng.choice(["get", "variable"]),
        "sparse": rng.random() < 0.2,
      }
      part.append(key)
    parts.append(part)
  everything = list(program["weights"])
  kind = rng.choice(_INNER_DRAWN)  # Of all, often: then nothing else decides.
  alike = rng.random() < 0.5
  shared = count > 1 and rng.random() < 0.2
  with_step = rng.choice(["none", "first", "all"])
  for i in range(count):
    if style in ("same", "overlap"):
      trained = everything if rng.random() < 0.6 else [rng.choice(everything)]
    else:
      trained = parts[i]
    program["optimizers"][f"opt{i}"] = {
      "kind": kind if alike else rng.choice(_INNER_DRAWN),
      "scope": scopes[i],
      "trains": list(trained),
      "reads": everything if rng.random() < 0.6 else [],
      "step": with_step == "all" or (with_step == "first" and i == 0),
      "scale": "ls0" if shared and i < 2 else f"ls{i}",
    }
  _draw_steps(rng, program, prefixes, with_step)
  _part_slots(program)
  return program


def _part_slots(program: dict) -> None:
  """Changes variable scopes where two slots would have one name.

  TensorFlow refuses that for a variable which two optimizers of a kind train in
  one variable scope.
  """
  taken = set()
  for spec in program["optimizers"].values():
    path = "/".join(name for what, name in spec["scope"] if what == "variable")
    slots = {(path, spec["kind"], name) for name in spec["trains"]}
    if path and slots & taken:
      spec["scope"] = [["name", name] for _, name in spec["scope"]]
    taken |= slots


def _draw_steps(rng, program, prefixes, with_step) -> None:
  """Draws what is made besides, and in which order."""
  steps = [["weight", key] for key in program["weights"]]
  for i in range(rng.choice([0, 0, 0, 1, 2, 3, 4])):
    name = rng.choice(sorted(_INTERNAL))
    user = {
      "name": (rng.choice(prefixes) if prefixes and rng.random() < 0.3 else "")
      + name,
      "how": rng.choice(["get", "variable"]),
      "dtype": rng.choice(_INTERNAL[name]),
    }
    if any(
      user["name"] == other["name"] for other in program["users"].values()
    ):
      continue
    program["users"][f"u{i}"] = user
    if user["dtype"] == "float32" and rng.random() < 0.3:
      steps.append(["user", f"u{i}"])
      spec = program["optimizers"][rng.choice(sorted(program["optimizers"]))]
      spec["trains"].append(f"u{i}")
  if with_step != "none":
    steps.append(["step", ""])
  steps += [["optimizer", key] for key in program["optimizers"]]

  def insert(step, first, last) -> None:
    steps.insert(rng.randint(first, last), step)

  for key in program["users"]:
    if ["user", key] not in steps:
      insert(["user", key], 0, len(steps))
  for key in sorted({o["scale"] for o in program["optimizers"].values()}):
    if rng.random() < 0.4:
      first = min(
        i
        for i, (what, name) in enumerate(steps)
        if what == "optimizer" and program["optimizers"][name]["scale"] == key
      )
      insert(["scale", key], 0, first)
  for _ in range(rng.choice([0, 0, 0, 1, 2])):
    insert(["cond", ""], 0, len(steps))
  if rng.random() < 0.25:
    program["ema"] = sorted(program["weights"])
    last = max(i for i, s in enumerate(steps) if s[0] == "weight")
    insert(["ema", ""], last + 1, len(steps))
  program["steps"] = steps


def variant_of(rng: random.Random, program: dict) -> dict:
  """Draws how a program is built."""
  by_scale = {}
  kinds = {}
  weights = rng.choice([(5, 1, 1, 1), (3, 0, 0, 1), (0, 1, 0, 2), (1, 0, 1, 0)])
  drawn = [
    kind
    for kind, weight in zip(("dynamic", "plain", "fixed", "contrib"), weights)
    for _ in range(weight)
  ]
  sharing = collections.Counter(
    spec["scale"] for spec in program["optimizers"].values()
  )
  for key, spec in program["optimizers"].items():
    scale = spec["scale"]
    kind = by_scale.setdefault(scale, rng.choice(drawn))
    if sharing[scale] > 1 and rng.random() < 0.15:
      kind = "plain"
    kinds[key] = kind
  return {"kinds": kinds, "v2": rng.random() < 0.4, "dropped": []}


def changed(rng: random.Random, program: dict, variant: dict) -> dict:
  """Draws how a program is built that was built in another way."""
  kinds = dict(variant["kinds"])
  result = {"kinds": kinds, "v2": variant["v2"], "dropped": []}
  what = rng.choice(
    ["same", *["flow"] * 5, "wrap", "wrap", "wrap", "api", "api", "number"]
  )
  if what == "same":
    return dict(variant)
  if what == "flow" or rng.random() < 0.3:
    result["v2"] = not variant["v2"]
  if what == "number":
    if variant["dropped"]:
      return result
    if len(kinds) > 1:
      result["dropped"] = [rng.choice(sorted(kinds))]
      return result
  result["dropped"] = list(variant["dropped"])
  if what == "wrap":
    for key, kind in variant_of(rng, program)["kinds"].items():
      if rng.random() < 0.6:
        kinds[key] = kind
  elif what == "api":
    swap = {"dynamic": "contrib", "contrib": "dynamic"}
    kinds.update({key: swap.get(kind, kind) for key, kind in kinds.items()})
  # A loss scale is of one kind, whoever shares it.
  by_scale = {}
  for key, spec in program["optimizers"].items():
    if kinds[key] != "plain":
      kinds[key] = by_scale.setdefault(spec["scale"], kinds[key])
  return result


class _Builder:
  """Builds a program in the current graph.

  Attributes:
    made: Identity -> variable.
    objects: What `tf.train.Checkpoint` is to save.
  """

  def __init__(self, program: dict, variant: dict, api: Api) -> None:
    self.made = {}
    self.objects = {}
    self._program, self._variant, self._api = program, variant, api
    self._scales = {}
    self._kinds = {
      key: kind
      for key, kind in variant["kinds"].items()
      if key not in variant["dropped"]
    }
    for what, key in program["steps"]:
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
      inner = opt = _INNER[spec["kind"]]()
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
      opt.minimize(
        tf.add_n(terms),
        global_step=self.made["step",] if spec["step"] else None,
        var_list=trained,
      )
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
    A pair: identity -> variable, of every global variable; and the objects that
    `tf.train.Checkpoint` takes by keyword.
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
  """A program in a graph of its own.

  Attributes:
    graph: The graph.
    made: Identity -> variable.
    objects: What `tf.train.Checkpoint` is to save.
  """

  def __init__(self, program: dict, variant: dict, api: Api) -> None:
    self.graph = tf.Graph()
    with control_flow(variant["v2"]), self.graph.as_default():
      self.made, self.objects = build(program, variant, api)
    self._initial = None
    self._saver = None

  def initial(self) -> dict:
    """Returns the number that each variable's own initializer gives."""
    if self._initial is None:
      with self.graph.as_default(), open_session(self.graph) as session:
        # An average's initializer may read its weight.
        weights = [v for k, v in self.made.items() if k[0] == "weight"]
        session.run([v.initializer for v in weights])
        session.run(tf1.global_variables_initializer())
        self._initial = _numbers(session, self.made)
    return self._initial

  def saver(self):
    """Returns TensorFlow's own `Saver` of all variables."""
    if self._saver is None:
      with self.graph.as_default():
        self._saver = tf1.train.Saver()
    return self._saver


class Graphs:
  """Programs in graphs, each built when first asked for.

  Building costs more than all else that a check does, and checks of one program
  often need the same variant. A check changes no variable's name and no op of
  the program. It only adds ops, as programs do that restore several times.
  """

  def __init__(self) -> None:
    self._built = {}

  def get(self, program: dict, variant: dict, api: Api) -> Built:
    """Returns a program as a variant has it."""
    key = json.dumps([program, variant, api.name], sort_keys=True)
    if key not in self._built:
      self._built[key] = Built(program, variant, api)
    return self._built[key]


def open_session(graph):
  """Opens a session that spends no time on optimizing a graph for few runs."""
  config = tf1.ConfigProto()
  config.graph_options.rewrite_options.disable_meta_optimizer = True
  config.graph_options.optimizer_options.opt_level = -1
  return tf1.Session(graph=graph, config=config)


def set_values(session, values) -> None:
  """Sets variables: (variable, number) pairs."""
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


def _numbers(session, made) -> dict:
  """Returns the one number that each variable consists of; None if several."""
  values = session.run(made)
  return {
    identity: float(np.ravel(value)[0])
    if len(set(np.ravel(value).tolist())) == 1
    else None
    for identity, value in values.items()
  }


def save(
  program,
  variant,
  api,
  path,
  meta=True,
  by_object=False,
  strip=False,
  graphs=None,
):
  """Saves a program with a number of its own in every variable.

  Args:
    program: The program.
    variant: How it is built.
    api: By which API.
    path: The prefix.
    meta: Whether to write the '.meta', too.
    by_object: Saves by `tf.train.Checkpoint`.
    strip: Leaves out of the '.meta' what attributes are by default.
    graphs: Programs that are built already.

  Returns:
    A pair: the checkpoint's prefix, and identity -> (name, number).
  """
  # `tf.train.Checkpoint` adds a variable, which no other check may see.
  graphs = graphs if graphs and not by_object else Graphs()
  built = graphs.get(program, variant, api)
  made = built.made
  with control_flow(variant["v2"]), built.graph.as_default():
    manifest = {
      identity: (made[identity].op.name, SAVED + i)
      for i, identity in enumerate(sorted(made))
    }
    with open_session(built.graph) as session:
      set_values(session, [(made[k], n) for k, (_, n) in manifest.items()])
      if by_object:
        checkpoint = tf1.train.Checkpoint(**built.objects)
        checkpoint.save_counter  # noqa: B018 It is made when asked for.
        session.run(checkpoint.save_counter.initializer)
        path = checkpoint.save(path, session=session)
      else:
        built.saver().save(
          session,
          path,
          latest_filename=os.path.basename(path) + ".state",
          write_meta_graph=meta,
          write_state=False,
          strip_default_attrs=strip,
        )
  return path, manifest


class Finding:
  """How a restore or a conversion went.

  Attributes:
    outcome: 'ok', 'error' (as it should be where nothing is proven), or one of
      FAILURES.
    details: What is wrong, if it is a failure; what was said, if an error.
    tags: What is known of the case.
  """

  def __init__(self, outcome, details=(), tags=()) -> None:
    self.outcome, self.details, self.tags = outcome, list(details), set(tags)

  @property
  def failed(self) -> bool:
    return self.outcome in FAILURES

  def __str__(self) -> str:
    tags = f" [{', '.join(sorted(self.tags))}]" if self.tags else ""
    return "\n    ".join([self.outcome + tags, *map(str, self.details)])


# Cases in which another's value counts as right, as TensorFlow's own Saver goes
# by names as well.
_EXCUSED = {"exact by letter"}
# An optimizer was dropped, and another one's slots have its names now.
_SLOT = re.compile(r"slot/\S+: (\S+) has \S+ of '(\S+)', ")
FAILURES = {
  "WRONG": "a variable has a value that is another's",
  "SILENT": "a variable is left out, and not said to be",
  "LOST": "a variable starts anew although the checkpoint has its value",
  "TOUCHED": "something was assigned although there was an error",
  "TEXT": "an error names no variable, or no way out",
  "STUCK": "what an error says would decide does not",
  "REFUSED": "the very same program is not restored",
  "CHANGED": "a conversion changed what was in its layout already",
  "CRASHED": "an error that is no CheckpointError",
}


def truth_of(identity, manifest):
  """Returns what a variable should have: (key, number), or None.

  None is for a loss scale that the checkpoint has nothing of.
  """
  if identity in manifest:
    return tuple(manifest[identity])
  bad_steps = identity[0] == "scale" and identity[2] == "bad"
  if bad_steps and (*identity[:2], "good") in manifest:
    return ("", 0)  # Which the other API does not count.
  return None


def _like_internals(names) -> set:
  """Returns those (name, dtype) pairs that may be an optimizer's own."""
  return {
    (name, dtype)
    for name, dtype in names
    if _LIKE_INTERNAL.fullmatch(name.rpartition("/")[2])
  }


def _tags(made, manifest, dtypes, meta) -> set:
  """Says what makes a case one to be counted apart."""
  here = {(v.op.name, v.dtype.base_dtype.name) for v in made.values()}
  there = {(name, dtypes[name]) for name, _ in manifest.values()}
  tags = set()
  if not meta and _like_internals(here) == _like_internals(there):
    tags.add("exact by letter")
  if here == there:
    tags.add("all names equal")
  elif here <= there:
    tags.add("names are a subset")
  return tags


def _differences(made, manifest, numbers, initial, report):
  """Yields (outcome, what differs) for every variable that is not right."""
  keys = {number: name for name, number in manifest.values()}
  parts = ("restored", "bridged", "initialized", "kept")
  for identity, variable in made.items():
    name, number = variable.op.name, numbers[identity]
    listed = [p for p in parts if name in getattr(report, p)] if report else []
    truth = truth_of(identity, manifest)
    what = (
      f"{'/'.join(identity)}: {name} has {number} of "
      f"{keys.get(number, 'nothing')!r}, truly {truth}; listed in {listed}"
    )
    if report and len(listed) != 1:
      yield "SILENT", what
    elif truth is not None and number == truth[1]:
      if listed == ["kept"] or (listed == ["initialized"] and truth[0]):
        yield "SILENT", what
    elif number in keys:
      yield "WRONG", what
    elif truth is not None and listed == ["initialized"]:
      yield "LOST", what
    elif (
      listed != ["initialized"]
      or identity[0] != "scale"
      or number != initial[identity]
    ):
      yield "SILENT", what


def _judged(differences, tags) -> Finding:
  """Returns the finding that differences amount to: the worst of them."""
  differences = list(differences)
  told = [what for _, what in differences]
  outcomes = {outcome for outcome, _ in differences}
  slots = [match for match in map(_SLOT.match, told) if match]
  dropped = bool(slots) and all(match[1] == match[2] for match in slots)
  if (tags & _EXCUSED or dropped) and "WRONG" in outcomes:
    outcomes -= {"WRONG", "LOST"} if dropped else {"WRONG"}
    if not outcomes:
      return Finding("exact by letter", told, tags)
  for outcome in FAILURES:
    if outcome in outcomes:
      return Finding(outcome, told, tags)
  return Finding("ok", told, tags)


def _says_enough(text, names) -> bool:
  """Whether an error names a variable, and what is wrong or what to do."""
  return any(name in text for name in names) and bool(
    re.search(r"mapping=|\bin it\b", text)
  )


def check(
  program,
  variant,
  api,
  path,
  manifest,
  saver=False,
  same=False,
  graphs=None,
):
  """Restores into a variant, and judges every variable.

  Args:
    program: The program.
    variant: How it is built here.
    api: By which API.
    path: The checkpoint.
    manifest: What is in it.
    saver: Restores by a `Saver`, not by `restore`.
    same: Whether nothing differs, so that there must not be an error.
    graphs: Programs that are built already.

  Returns:
    A `Finding`.
  """
  from tf_compat_lossscale import checkpoint

  dtypes = _dtypes(path, manifest)
  meta = os.path.exists(path + ".meta")
  built = (graphs or Graphs()).get(program, variant, api)
  made, initial = built.made, built.initial()
  with control_flow(variant["v2"]), built.graph.as_default():
    tags = _tags(made, manifest, dtypes, meta)
    order = {identity: BEFORE + i for i, identity in enumerate(made)}
    with open_session(built.graph) as session:
      set_values(session, [(made[k], n) for k, n in order.items()])
      restorer = checkpoint.Saver() if saver else None
      try:
        if restorer:
          restorer.restore(session, path)
          report = restorer.last_report
        else:
          report = checkpoint.restore(session, path)
      except checkpoint.CheckpointError as error:
        text = str(error)
        if _numbers(session, made) != order:
          return Finding("TOUCHED", [text], tags)
        names = {v.op.name for v in made.values()}
        names.update(name for name, _ in manifest.values())
        if not _says_enough(text.replace(path, ""), names):
          return Finding("TEXT", [text], tags)
        if same:
          return Finding("REFUSED", [text], tags)
        return _with_mapping(
          session, path, made, manifest, initial, Finding("error", [text], tags)
        )
      except Exception as error:  # Reported: no other kind is foreseen.
        return Finding("CRASHED", [f"{type(error).__name__}: {error}"], tags)
      numbers = _numbers(session, made)
      if report and report.bridged:
        tags.add("bridged")
      return _judged(
        _differences(made, manifest, numbers, initial, report), tags
      )


def _with_mapping(session, path, made, manifest, initial, finding) -> Finding:
  """Restores once more, saying which is which, if the error says so."""
  from tf_compat_lossscale import checkpoint

  text = finding.details[0]
  accepted = inspect.signature(checkpoint.restore).parameters
  by_object = "_CHECKPOINTABLE_OBJECT_GRAPH" in dict(
    tf.train.list_variables(path)
  )
  if "mapping" not in accepted or "mapping=" not in text or by_object:
    return finding
  truths = {
    made[identity].op.name: truth_of(identity, manifest) for identity in made
  }
  mapping = {name: truth[0] for name, truth in truths.items() if truth}
  mapping = {name: key for name, key in mapping.items() if key}
  for identity, variable in made.items():  # A loss scale that is new here.
    if identity[0] == "scale" and not truths[variable.op.name]:
      mapping[variable.op.name] = None
  # Each candidate, as far as the text goes.
  if not any(
    name in text and str(key) in text for name, key in mapping.items()
  ):
    finding.tags.add("no true candidate is listed")
  missing = [
    identity
    for identity in made
    if identity[0] != "scale" and not truth_of(identity, manifest)
  ]
  try:
    report = checkpoint.restore(session, path, mapping=mapping)
  except (checkpoint.CheckpointError, ValueError) as error:
    finding.details.append(f"with the true mapping: {error}")
    finding.tags.add("mapping refused")
    if not missing:
      finding.outcome = "STUCK"
    return finding
  numbers = _numbers(session, made)
  judged = _judged(
    _differences(made, manifest, numbers, initial, report), set()
  )
  finding.tags.add("mapped")
  if judged.failed:
    return Finding(judged.outcome, judged.details, finding.tags)
  return finding


def _dtypes(path, manifest) -> dict:
  """Returns the dtype of every variable in a checkpoint, by its name."""
  reader = tf.train.load_checkpoint(path)
  found = reader.get_variable_to_dtype_map()
  # One by object has keys of other kinds; there a number says which it is.
  if all(name in found for name, _ in manifest.values()):
    return {name: found[name].name for name, _ in manifest.values()}
  numbers = {number: name for name, number in manifest.values()}
  dtypes = {}
  for key, dtype in found.items():
    if dtype != tf.string:
      number = float(np.ravel(reader.get_tensor(key))[0])
      if number in numbers:
        dtypes[numbers[number]] = dtype.name
  return dtypes


def layout_variant(variant: dict, to: str) -> dict:
  """Returns the variant that a layout of `convert` is for."""
  swap = {
    "contrib": {"dynamic": "contrib"},
    "fp32": dict.fromkeys(KINDS, "plain"),
  }.get(to, {"contrib": "dynamic"})
  kinds = {k: swap.get(kind, kind) for k, kind in variant["kinds"].items()}
  v2 = to == "saver-v2" or (to == "fp32" and variant["v2"])
  return dict(variant, kinds=kinds, v2=v2)


def check_conversion(
  program, variant, path, manifest, to, graphs=None
) -> Finding:
  """Converts, and has TensorFlow's own Saver restore it."""
  from tf_compat_lossscale import checkpoint

  here = layout_variant(variant, to)
  new = os.path.join(os.path.dirname(path), f"to-{to}")
  dtypes = _dtypes(path, manifest)
  meta = os.path.exists(path + ".meta")
  built = (graphs or Graphs()).get(program, here, Api("tfl"))
  made = built.made
  with control_flow(here["v2"]), built.graph.as_default():
    tags = _tags(made, manifest, dtypes, meta)
    try:
      checkpoint.convert(path, new, to, overwrite=True)
    except checkpoint.CheckpointError as error:
      return Finding("error", [str(error)], tags)
    except Exception as error:  # Reported: no other kind is foreseen.
      return Finding("CRASHED", [f"{type(error).__name__}: {error}"], tags)
    with open_session(built.graph) as session:
      try:
        built.saver().restore(session, new)
      except (tf.errors.OpError, ValueError) as error:
        line = str(error).strip().splitlines()[0]
        return Finding("error", [f"{type(error).__name__}: {line}"], tags)
      numbers = _numbers(session, made)
      differences = _differences(made, manifest, numbers, {}, None)
      return _judged(differences, tags)


def make_old(path) -> None:
  """Makes a checkpoint's files look a minute old.

  A refusal waits while files are so new that a process may still write more.
  """
  folder, prefix = os.path.split(path)
  for name in os.listdir(folder):
    if name.startswith(prefix):
      then = time.time() - 60
      os.utime(os.path.join(folder, name), (then, then))


def own_layout(program, variant):
  """Returns the layout that a variant has already; None if none is its."""
  kinds = {
    kind
    for key, kind in variant["kinds"].items()
    if key not in variant["dropped"]
  }
  if not kinds & set(SCALING):
    return "fp32"
  if {"dynamic", "contrib"} <= kinds:
    return None
  if "contrib" in kinds:
    return None if variant["v2"] else "contrib"
  v1 = not variant["v2"] or not program["resource"]
  return "saver" if v1 else "saver-v2"


def check_own_layout(path, to) -> Finding:
  """Converts to the layout that a checkpoint is in: nothing may change."""
  from tf_compat_lossscale import checkpoint

  new = os.path.join(os.path.dirname(path), f"own-{to}")
  try:
    checkpoint.convert(path, new, to, overwrite=True)
  except checkpoint.CheckpointError as error:
    return Finding("error", [str(error)])
  before, after = map(_contents, (path, new))
  if before == after:
    return Finding("ok")
  details = [
    f"{key}: {before.get(key)} became {after.get(key)}"
    for key in sorted({*before, *after})
    if before.get(key) != after.get(key)
  ]
  return Finding("CHANGED", details)


def _contents(path) -> dict:
  """Returns (dtype, bytes) of every tensor, by key."""
  reader = tf.train.load_checkpoint(path)
  return {
    key: (dtype.name, np.asarray(reader.get_tensor(key)).tobytes().hex())
    for key, dtype in reader.get_variable_to_dtype_map().items()
  }


def describe(variant: dict, api: Api) -> str:
  """Returns a variant in short."""
  kinds = ",".join(
    "none" if key in variant["dropped"] else kind
    for key, kind in sorted(variant["kinds"].items())
  )
  return f"{kinds} v{1 + variant['v2']} {api.name}"


def _api(rng, program, variant) -> Api:
  """Draws an API that a variant can be built by."""
  own = Api("tf")
  if rng.random() < 0.25 and own.can(program, variant):
    return own
  return Api("tfl")


def run(seed: int, restores: int = 3):
  """Saves and restores one program in several ways.

  The program is saved by one variant and restored by `restores` others. Then
  each of those saves it as well, and all restore that: building the graphs
  takes most of the time, so that each is used for all that it can show.

  Args:
    seed: What decides all.
    restores: The number of variants beside the first.

  Yields:
    Pairs: what was done, and its `Finding`.
  """
  program = program_of(seed)
  rng = random.Random(f"variants of {seed}")
  variant = variant_of(rng, program)
  if len(variant["kinds"]) > 1 and rng.random() < 0.06:
    variant["dropped"] = [rng.choice(sorted(variant["kinds"]))]
  ways = [(variant, _api(rng, program, variant))]
  for _ in range(restores):
    here = changed(rng, program, variant)
    ways.append((here, _api(rng, program, here)))
  graphs = Graphs()
  for i, (variant, api) in enumerate(ways):
    with tempfile.TemporaryDirectory() as folder:
      by_object = rng.random() < 0.12
      meta = not by_object and rng.random() < 0.5
      path, manifest = save(
        program,
        variant,
        api,
        os.path.join(folder, "model.ckpt"),
        meta,
        by_object,
        graphs=graphs,
      )
      make_old(path)
      how = "by object" if by_object else "with .meta" if meta else "without"
      told = f"seed {seed}.{i}: {describe(variant, api)} ({how})"
      for here, here_api in ways:
        saver = rng.random() < 0.3
        same = here == variant and not by_object
        yield (
          f"restore{' same' * same}",
          f"{told} -> {describe(here, here_api)}{' Saver' * saver}",
          check(program, here, here_api, path, manifest, saver, same, graphs),
        )
      if i == 0:  # Each layout has one more graph.
        to = rng.choice(["saver", "saver-v2", "contrib", "fp32"])
        yield (
          f"convert to {to}",
          f"{told} -> {to}",
          check_conversion(program, variant, path, manifest, to, graphs),
        )
      own = own_layout(program, variant)
      if own and not by_object:
        finding = check_own_layout(path, own)
        yield "convert to own", f"{told} -> {own}", finding


def write_manifest(path, program, variant, manifest) -> None:
  """Writes what a checkpoint has as JSON."""
  content = {
    "program": program,
    "variant": variant,
    "release": tf.__version__,
    "variables": [
      {"identity": list(identity), "name": name, "number": number}
      for identity, (name, number) in sorted(manifest.items())
    ],
  }
  with open(path, "w") as file:
    json.dump(content, file, indent=1, sort_keys=True)
    file.write("\n")


def read_manifest(path):
  """Reads what `write_manifest` wrote: program, variant and manifest."""
  with open(path) as file:
    content = json.load(file)
  manifest = {
    tuple(row["identity"]): (row["name"], row["number"])
    for row in content["variables"]
  }
  return content["program"], content["variant"], manifest


def main() -> int:
  """Runs many programs, prints statistics and what failed."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--first", type=int, default=0)
  parser.add_argument("--count", type=int, default=100)
  parser.add_argument("--restores", type=int, default=3)
  parser.add_argument(
    "--errors", action="store_true", help="print what errors say, too"
  )
  args = parser.parse_args()
  begin = time.time()
  statistics, failing = collections.Counter(), collections.defaultdict(set)
  for seed in range(args.first, args.first + args.count):
    for what, case, finding in run(seed, args.restores):
      statistics[what, finding.outcome] += 1
      for tag in sorted(finding.tags):
        statistics[what, f"{finding.outcome} [{tag}]"] += 1
      if finding.failed:
        failing[finding.outcome].add(seed)
        failing["any"].add(seed)
      if finding.failed or (args.errors and finding.outcome != "ok"):
        print(f"{case}: {what}: {finding}", flush=True)
  for (what, outcome), count in sorted(statistics.items()):
    print(f"{count:7} {what}: {outcome}")
  for outcome, seeds in sorted(failing.items()):
    print(f"{len(seeds):7} seeds of {args.count} {outcome}")
  print(f"{time.time() - begin:.0f} seconds")
  return 1 if failing else 0


if __name__ == "__main__":
  sys.exit(main())
