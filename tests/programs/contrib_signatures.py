# SPDX-License-Identifier: Apache-2.0
"""Describes the signatures of `tf.contrib`, on TensorFlow 1.15 and on today's.

`python contrib_signatures.py` prints what `legacy/contrib_signatures.json`
has of TensorFlow 1.15.5. It reads a JSON object from stdin: `names`, which is
module of `tf.contrib` -> names, and `modules`, those below that it may import.
"""

import contextlib
import enum
import importlib
import inspect
import json
import sys

_KINDS = inspect.Parameter
# Where the bases of layers and the like have their methods.
_BASES = ("keras", "layers.base", "trackable", "tracking", "module.module")


def _show(value):
  """Returns a default as a text that is the same on both releases."""
  if value is None or isinstance(value, (bool, int, float, str)):
    return repr(value)
  if isinstance(value, (tuple, list)):
    return "(" + ", ".join(map(_show, value)) + ")"
  name = getattr(value, "__name__", None) or getattr(value, "name", None)
  return "<" + (name or type(value).__name__) + ">"


def _list_parameters(function, drop_first):
  """Returns the parameters as texts; None if Python does not know them."""
  from tensorflow.python.util import tf_decorator

  try:
    found = inspect.signature(tf_decorator.unwrap(function)[1])
  except (TypeError, ValueError):
    return None
  parameters = list(found.parameters.values())
  positional = (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD)
  if drop_first and parameters and parameters[0].kind in positional:
    parameters = parameters[1:]
  texts = []
  for each in parameters:
    text = {_KINDS.VAR_POSITIONAL: "*", _KINDS.VAR_KEYWORD: "**"}.get(
      each.kind, ""
    )
    text += ("only " if each.kind == _KINDS.KEYWORD_ONLY else "") + each.name
    if each.default is not each.empty:
      text += "=" + _show(each.default)
    texts.append(text)
  return texts


def _list_members(cls, inherited):
  """Returns the public members of a class: methods with their parameters."""
  constructor = cls.__init__
  if constructor is object.__init__:
    constructor = cls.__new__
  found = {"": _list_parameters(constructor, True)}
  if issubclass(cls, enum.Enum):
    found[""] = "attribute"
  for name in dir(cls):
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    if name.startswith("_") or owner is None:
      continue
    if any(base in owner.__module__ for base in _BASES):
      found.update({name: "inherited"} if inherited else {})
      continue
    member = vars(owner)[name]
    if isinstance(member, staticmethod):
      found[name] = _list_parameters(member.__func__, False)
    elif isinstance(member, classmethod):
      found[name] = _list_parameters(member.__func__, True)
    elif inspect.isfunction(member) or hasattr(member, "_tf_decorator"):
      found[name] = _list_parameters(member, True)
    else:
      found[name] = "attribute"
  return found


def describe(value, inherited=False):
  """Returns the signature of a function, or those of a class; else None.

  Args:
    value: Anything.
    inherited: Whether to name what a class has of layers and the like.
  """
  if inspect.isclass(value):
    return _list_members(value, inherited)
  if inspect.ismodule(value) or not callable(value):
    return None
  return {"": _list_parameters(value, False)}


def describe_names(names, inherited=False):
  """Returns MODULE.NAME -> description of names of `tf.contrib`."""
  import tensorflow  # noqa: F401

  found = {}
  for module in sorted(names):
    top = "tensorflow.contrib." + module
    try:
      owners = [importlib.import_module(top)]
    except ImportError:
      continue
    # On 1.15, a name of the table may be in a module below.
    prefix = owners[0].__name__
    owners += [
      each
      for name, each in sorted(sys.modules.items())
      if name.startswith(prefix + ".") and each is not None
    ]
    for name in names[module]:
      for owner in owners:
        try:
          value = getattr(owner, name)
        except (AttributeError, ImportError):
          continue
        described = describe(value, inherited)
        if described is not None:
          found[module + "." + name] = described
          break
  return found


def _list_attributes(value):
  """Returns the attributes of an object that its class and base gave it."""
  of_class = {
    name
    for cls in type(value).__mro__
    if "mixed_precision" in cls.__module__ or "loss_scale" in cls.__module__
    for name in vars(cls)
  }
  names = of_class | set(vars(value))
  return sorted(
    name
    for name in names
    if not name.startswith(("__", "_abc", "_self_", "_setattr", "_tf_api"))
  )


def describe_attributes():
  """Returns class -> attributes, of all classes of loss scaling."""
  import tensorflow as tf

  contrib, train = tf.contrib.mixed_precision, tf.train.experimental
  with tf.Graph().as_default():
    exponential = contrib.ExponentialUpdateLossScaleManager(8.0, 2)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    mixed = train.MixedPrecisionLossScaleOptimizer(optimizer, "dynamic")
    return {
      "FixedLossScaleManager": contrib.FixedLossScaleManager(8.0),
      "ExponentialUpdateLossScaleManager": exponential,
      "LossScaleOptimizer": contrib.LossScaleOptimizer(optimizer, exponential),
      "FixedLossScale": train.FixedLossScale(8.0),
      "DynamicLossScale": train.DynamicLossScale(8.0),
      "MixedPrecisionLossScaleOptimizer": mixed,
    }


def main():
  """Prints what there is in this TensorFlow."""
  importlib.import_module("tensorflow.contrib")
  given = json.load(sys.stdin)
  for module in given["modules"]:
    with contextlib.suppress(Exception):  # 1.15 lacks some.
      importlib.import_module("tensorflow.contrib." + module)
  tables = {
    "attributes": {
      name: _list_attributes(value)
      for name, value in describe_attributes().items()
    },
    "signatures": describe_names(given["names"]),
  }
  tables_texts = []
  for title, table in sorted(tables.items()):
    rows = [
      json.dumps(key) + ": " + json.dumps(table[key], sort_keys=True)
      for key in sorted(table)
    ]
    tables_texts.append(json.dumps(title) + ": {\n" + ",\n".join(rows) + "\n}")
  print("{\n" + ",\n".join(tables_texts) + "\n}")


if __name__ == "__main__":
  main()
