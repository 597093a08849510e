# SPDX-License-Identifier: Apache-2.0
"""Gives functions and classes of today the parameters of `tf.contrib`.

A name of `tf.contrib` may be served by something that does the same, but whose
parameters have other names, another order or other defaults. The table has what
differs from TensorFlow 1.15 for these.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import functools
import inspect
import re
from typing import Any
from typing import cast
from typing import NamedTuple

# The parameters that a name of `tf.contrib`, or a method of one, had.
_PARAMETERS = """
autograph.to_code(entity, recursive=True, experimental_optional_features=None)
autograph.to_graph(entity, recursive=True, experimental_optional_features=None)
cluster_resolver.SlurmClusterResolver(jobs, port_base=8888, gpus_per_node=1,
    gpus_per_task=1, tasks_per_node=None, auto_set_gpu=True, rpc_layer="grpc")
distribute.AllReduceCrossDeviceOps(all_reduce_alg="nccl", num_packs=1,
    agg_small_grads_max_bytes=0, agg_small_grads_max_group=10)
eager.defun(func=None, input_signature=None, autograph=True,
    experimental_autograph_options=None, experimental_relax_shapes=False)
eager.function(func=None, input_signature=None, autograph=True,
    experimental_autograph_options=None, experimental_relax_shapes=False,
    experimental_compile=None)
eager.make_template(name_, func_, create_scope_now_=False, unique_name_=None,
    custom_getter_=None, create_graph_function_=False, **kwargs)
framework.remove_squeezable_dimensions(predictions, labels, name=None)
lookup.HashTable(initializer, default_value, shared_name=None, name=None)
lookup.MutableDenseHashTable(key_dtype, value_dtype, default_value, empty_key,
    deleted_key, initial_num_buckets=None, name="MutableDenseHashTable",
    checkpoint=True)
lookup.MutableHashTable.lookup(keys, name=None)
tpu.InfeedQueue(number_of_tuple_elements=None, tuple_types=None,
    tuple_shapes=None, shard_dimensions=None, name=None)
"""
_RELAX = {
  "experimental_relax_shapes": "reduce_retracing",
  "experimental_compile": "jit_compile",
}
_DIRECTORY = {"checkpoint_dir": "ckpt_dir_or_file"}
_MAPPING = {"mapping": "vocabulary_list"}
# Name -> its parameters that have other names today; None if a parameter has no
# effect today.
_RENAMED: dict[str, Mapping[str, str | None]] = {
  # Small gradients are packed by the number of bytes, whatever is asked for.
  "distribute.AllReduceCrossDeviceOps": {
    "agg_small_grads_max_bytes": None,
    "agg_small_grads_max_group": None,
  },
  "eager.defun": _RELAX,
  "eager.function": _RELAX,
  "eager.make_template": {"create_graph_function_": None},
  "framework.init_from_checkpoint": _DIRECTORY,
  "framework.list_variables": _DIRECTORY,
  "framework.load_checkpoint": {"filepattern": "ckpt_dir_or_file"},
  "framework.load_variable": _DIRECTORY,
  # Both are treated alike.
  "framework.remove_squeezable_dimensions": {
    "predictions": "labels",
    "labels": "predictions",
  },
  # Tables of one initializer have the same content, shared or not.
  "lookup.HashTable": {"shared_name": None},
  # A `Saver` finds the table in a collection, as if `checkpoint` were True.
  "lookup.MutableDenseHashTable": {"checkpoint": None},
  "lookup.index_table_from_tensor": _MAPPING,
  "lookup.index_to_string_table_from_tensor": _MAPPING,
  "tensorboard.visualize_embeddings": {"summary_writer": "logdir"},
}


class Change(NamedTuple):
  """The parameters of a name of `tf.contrib`.

  Attributes:
    renamed: Parameter -> its name today; None if it has no effect today.
    signature: The parameters of TensorFlow 1.15; None if only `renamed` tells
      them from today's.
    method: The method that has the parameters; "" for the name itself.
  """

  renamed: Mapping[str, str | None]
  signature: inspect.Signature | None = None
  method: str = ""


def _read_changes() -> dict[str, Change]:
  """Returns name -> its change, for all names of the tables."""
  changes = {name: Change(renamed) for name, renamed in _RENAMED.items()}
  for row in re.sub(r"\n {4}", " ", _PARAMETERS).strip().splitlines():
    path, _, parameters = row.partition("(")
    function = eval(f"lambda {parameters[:-1]}: None")  # Our own text.
    module, name, *method = path.split(".")
    key = f"{module}.{name}"
    changes[key] = Change(
      _RENAMED.get(key, {}), inspect.signature(function), "".join(method)
    )
  return changes


CHANGES = _read_changes()


def adapt(path: str, value: Any) -> Any:
  """Returns what serves a name, with the parameters of TensorFlow 1.15.

  Args:
    path: The name below `tf.contrib`, such as "eager.defun".
    value: The function or the class that serves the name.
  """
  change = CHANGES.get(path)
  return value if change is None else _adapt(path, value)


@functools.cache  # A class is the same in each module that has its name.
def _adapt(path: str, value: Any) -> Any:
  change = CHANGES[path]
  if not inspect.isclass(value):
    return _wrap(value, change, is_method=False)
  method = change.method or "__init__"
  wrapped = _wrap(getattr(value, method), change, is_method=True)
  names = {method: wrapped, "__doc__": value.__doc__}
  names["__module__"] = value.__module__
  return cast("Any", type(value))(value.__name__, (value,), names)


def _wrap(
  function: Callable[..., Any], change: Change, is_method: bool
) -> Callable[..., Any]:
  """Returns a function that takes the old parameters."""
  signature = change.signature or inspect.signature(function)
  parameters = list(signature.parameters.values())
  if change.signature is None:
    olds = {new: old for old, new in change.renamed.items()}
    parameters = [p.replace(name=olds.get(p.name, p.name)) for p in parameters]
  if is_method:
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters.insert(0, self)
  signature = signature.replace(parameters=parameters)

  # Without attributes: TensorFlow keeps what it decorated in one.
  @functools.wraps(function, updated=())
  def call(*args: Any, **kwargs: Any) -> Any:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    others: dict[str, Any] = arguments.pop("kwargs", {})
    first = [arguments.pop("self")] if is_method else []
    given: dict[str, Any] = {}
    for old, value in arguments.items():
      new = change.renamed.get(old, old)
      if new is not None:
        given[new] = value
    return function(*first, **given, **others)

  call.__signature__ = signature  # type: ignore[attr-defined]
  return call
