# SPDX-License-Identifier: Apache-2.0
"""Gives functions and classes of today the parameters of `tf.contrib`.

A name of `tf.contrib` may be served by something that does the same, but whose
parameters have other names, another order or other defaults. The table has the
parameters of TensorFlow 1.15 for these.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import inspect
from typing import Any
from typing import cast
from typing import NamedTuple


class Change(NamedTuple):
  """The parameters of a name of `tf.contrib`.

  Attributes:
    parameters: A function with the parameters of TensorFlow 1.15.
    renamed: Parameter -> its name today; None if it has no effect today.
    method: The method that has the parameters; "" for the name itself.
  """

  parameters: Callable[..., Any]
  renamed: dict[str, str | None]
  method: str = ""


def _to_graph(
  entity: Any,
  recursive: bool = True,
  experimental_optional_features: Any = None,
) -> None: ...


def _slurm(
  jobs: Any,
  port_base: int = 8888,
  gpus_per_node: int = 1,
  gpus_per_task: int = 1,
  tasks_per_node: Any = None,
  auto_set_gpu: bool = True,
  rpc_layer: str = "grpc",
) -> None: ...


def _all_reduce(
  all_reduce_alg: str = "nccl",
  num_packs: int = 1,
  agg_small_grads_max_bytes: int = 0,
  agg_small_grads_max_group: int = 10,
) -> None: ...


def _defun(
  func: Any = None,
  input_signature: Any = None,
  autograph: bool = True,
  experimental_autograph_options: Any = None,
  experimental_relax_shapes: bool = False,
) -> None: ...


def _function(
  func: Any = None,
  input_signature: Any = None,
  autograph: bool = True,
  experimental_autograph_options: Any = None,
  experimental_relax_shapes: bool = False,
  experimental_compile: Any = None,
) -> None: ...


def _make_template(
  name_: str,
  func_: Any,
  create_scope_now_: bool = False,
  unique_name_: Any = None,
  custom_getter_: Any = None,
  create_graph_function_: bool = False,
  **kwargs: Any,
) -> None: ...


def _init_from_checkpoint(checkpoint_dir: Any, assignment_map: Any) -> None: ...
def _list_variables(checkpoint_dir: Any) -> None: ...
def _load_checkpoint(filepattern: Any) -> None: ...
def _load_variable(checkpoint_dir: Any, name: str) -> None: ...


def _hash_table(
  initializer: Any,
  default_value: Any,
  shared_name: Any = None,
  name: Any = None,
) -> None: ...


def _dense_hash_table(
  key_dtype: Any,
  value_dtype: Any,
  default_value: Any,
  empty_key: Any,
  deleted_key: Any,
  initial_num_buckets: Any = None,
  name: str = "MutableDenseHashTable",
  checkpoint: bool = True,
) -> None: ...


def _lookup(keys: Any, name: Any = None) -> None: ...


def _visualize_embeddings(summary_writer: Any, config: Any) -> None: ...


def _infeed_queue(
  number_of_tuple_elements: Any = None,
  tuple_types: Any = None,
  tuple_shapes: Any = None,
  shard_dimensions: Any = None,
  name: Any = None,
) -> None: ...


_RELAX: dict[str, str | None] = {
  "experimental_relax_shapes": "reduce_retracing",
  "experimental_compile": "jit_compile",
}
_DIRECTORY: dict[str, str | None] = {"checkpoint_dir": "ckpt_dir_or_file"}

# A name of `tf.contrib` -> the parameters that it had.
CHANGES = {
  "autograph.to_code": Change(_to_graph, {}),
  "autograph.to_graph": Change(_to_graph, {}),
  "cluster_resolver.SlurmClusterResolver": Change(_slurm, {}),
  # Small gradients are packed by the number of bytes, whatever is asked for.
  "distribute.AllReduceCrossDeviceOps": Change(
    _all_reduce,
    {"agg_small_grads_max_bytes": None, "agg_small_grads_max_group": None},
  ),
  "eager.defun": Change(_defun, _RELAX),
  "eager.function": Change(_function, _RELAX),
  "eager.make_template": Change(
    _make_template, {"create_graph_function_": None}
  ),
  "framework.init_from_checkpoint": Change(_init_from_checkpoint, _DIRECTORY),
  "framework.list_variables": Change(_list_variables, _DIRECTORY),
  "framework.load_checkpoint": Change(
    _load_checkpoint, {"filepattern": "ckpt_dir_or_file"}
  ),
  "framework.load_variable": Change(_load_variable, _DIRECTORY),
  # Tables of one initializer have the same content, shared or not.
  "lookup.HashTable": Change(_hash_table, {"shared_name": None}),
  # A `Saver` finds the table in a collection, as if `checkpoint` were True.
  "lookup.MutableDenseHashTable": Change(
    _dense_hash_table, {"checkpoint": None}
  ),
  "lookup.MutableHashTable": Change(_lookup, {}, "lookup"),
  "tensorboard.visualize_embeddings": Change(
    _visualize_embeddings, {"summary_writer": "logdir"}
  ),
  "tpu.InfeedQueue": Change(_infeed_queue, {}),
}


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
  signature = inspect.signature(change.parameters)
  parameters = list(signature.parameters.values())
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
