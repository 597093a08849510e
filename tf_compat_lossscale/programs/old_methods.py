# SPDX-License-Identifier: Apache-2.0
"""Methods, functions and options that TensorFlow 2.10 and earlier had.

`install` sets them when the module of their class has loaded.

Options of `tf.data` that moved are set in their new place. Options that do
nothing there any more are accepted, and one line says so. Other names are still
errors. TensorFlow 1 made `Dataset.options()` anew at each call, so that
programs changed them and passed them to `with_options`. Since 2.5 that is an
error.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import functools
import numbers
import os
import random
import re
import sys
import types
from typing import Any
from typing import NoReturn

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import missing_names

# Class of options -> its options that do nothing any more.
_DROPPED = {
  "Options": "experimental_hoist_random_uniform experimental_stats "
  "experimental_latency_all_edges experimental_map_vectorization "
  "experimental_numa_aware experimental_stateful_whitelist",
  "OptimizationOptions": "autotune autotune_algorithm autotune_buffers "
  "autotune_cpu_budget autotune_ram_budget filter_with_random_uniform_fusion "
  "hoist_random_uniform map_vectorization reorder_data_discarding_ops",
}
# Options that do nothing, and have options of their own.
_NESTED = ("experimental_stats", "map_vectorization")
# Options of `experimental_optimization` that `Options` had as `experimental_…`.
_MOVED = (
  "filter_fusion map_and_batch_fusion map_and_filter_fusion map_fusion "
  "noop_elimination parallel_batch shuffle_and_repeat_fusion"
)
_said: list[str] = []

_Change = tuple[Any, str, Any]

_KERAS = re.compile(
  r"(?:tf_)?keras(?:\.src)?\."
  r"(backend|engine\.(base_layer(_v1)?|sequential)|mixed_precision\.policy)"
)
_TENSORBOARD = "tensorflow.python.summary.tb_summary"
_TEST_UTIL = "tensorflow.python.framework.test_util"
_seeds: list[Any] = []  # The last argument of `tf.random.set_seed`, if any.


def list_changes(name: str, module: Any) -> Iterator[_Change]:
  """Yields (owner, attribute, value) for what a loaded module lacks."""
  match = _KERAS.fullmatch(name)
  if name == "tensorflow":
    yield from _list_in_tensorflow(module)
  elif name == _TENSORBOARD:
    yield module.TBNotInstalledError, "__init__", _explain_tensorboard
  elif name == _TEST_UTIL:
    case = module.TensorFlowTestCase
    yield case, "_GetNdArray", _evaluate_nests(case._GetNdArray)
  elif match is None:
    return
  elif match[1] == "backend":
    _seed_keras()
    if not hasattr(module, "__path__"):  # For `backend.tensorflow_backend`.
      yield module, "__path__", []
  elif match[1].startswith("engine.base_layer"):
    yield module.Layer, "apply", _forward("__call__")
    if not match[1].endswith("v1"):  # Updates of eager layers run at once.
      yield module.Layer, "get_losses_for", _get_losses_for
      yield module.Layer, "get_updates_for", lambda self, inputs: []
  elif match[1] == "engine.sequential":
    if not hasattr(module.Sequential, "predict_classes"):
      yield module.Sequential, "predict_classes", _predict_classes
      yield (
        module.Sequential,
        "predict_proba",
        (
          lambda self, x, batch_size=32, verbose=0: self.predict(
            x, batch_size, verbose
          )
        ),
      )
  elif not hasattr(module.Policy, "should_cast_variables"):
    casts = property(lambda self: self.variable_dtype != self.compute_dtype)
    yield module.Policy, "should_cast_variables", casts


def _list_in_tensorflow(tensorflow: Any) -> Iterator[_Change]:
  v1, v2 = tensorflow.compat.v1, tensorflow.compat.v2
  methods: dict[str, Callable[..., Any]] = {
    "experimental_run_v2": _forward("run"),
    "experimental_distribute_datasets_from_function": _forward(
      "distribute_datasets_from_function"
    ),
    # What distributes a dataset copies it to the workers.
    "experimental_make_numpy_dataset": (
      lambda self, numpy_input: v2.data.Dataset.from_tensor_slices(numpy_input)
    ),
  }
  for strategy in (v1.distribute.Strategy, v2.distribute.Strategy):
    for name, method in methods.items():
      if not hasattr(strategy, name):
        yield strategy, name, method
  yield from _list_options(v2)
  yield v2.data.Dataset, "prefetch", _take_numpy(v2.data.Dataset.prefetch)
  set_seed = _seed_keras_too(v2.random.set_seed)
  for owner in (tensorflow.random, v2.random):
    if hasattr(owner, "set_seed"):  # TensorFlow 1 has none.
      yield owner, "set_seed", set_seed


def _forward(name: str) -> Callable[..., Any]:
  """Returns a method that calls the method of another name."""
  return lambda self, *args, **kwargs: getattr(self, name)(*args, **kwargs)


def _take_numpy(prefetch: Callable[..., Any]) -> Callable[..., Any]:
  """Returns a `Dataset.prefetch` that takes integers of NumPy, as in 1.15."""

  @functools.wraps(prefetch)
  def prefetch_any(self: Any, buffer_size: Any, *args: Any, **name: Any) -> Any:
    if isinstance(buffer_size, numbers.Integral):
      buffer_size = int(buffer_size)
    return prefetch(self, buffer_size, *args, **name)

  return prefetch_any


def _seed_keras_too(set_seed: Callable[[Any], None]) -> Callable[[Any], None]:
  """Returns a `tf.random.set_seed` that Keras 2's initializers follow.

  Since 2.11 they draw seeds from Python's `random`, unless a generator is set.
  """

  @functools.wraps(set_seed)
  def set_both(seed: Any) -> None:
    set_seed(seed)
    _seeds[:] = [seed]
    _seed_keras()

  return set_both


def _seed_keras() -> None:
  """Makes the initializers of Keras 2 repeat, if it is loaded."""
  module: Any = sys.modules.get(f"{which_keras.find_private_keras_2()}.backend")
  if _seeds and hasattr(module, "_SEED_GENERATOR"):
    generator = None if _seeds[0] is None else random.Random(_seeds[0])
    module._SEED_GENERATOR.generator = generator


def _get_losses_for(self: Any, inputs: Any) -> list[Any]:
  """Returns the losses that inputs of an eager layer led to.

  The layer does not know which inputs: they have all losses but those of
  weights, which are for None.
  """
  is_asked = inputs is None
  return [
    loss
    for loss in self.losses
    if getattr(loss, "_unconditional_loss", False) == is_asked
  ]


def _evaluate_nests(to_array: Callable[..., Any]) -> Callable[..., Any]:
  """Returns a `_GetNdArray` of tests that takes symbolic tensors in lists."""

  @functools.wraps(to_array)
  def evaluate(self: Any, a: Any) -> Any:
    try:
      return to_array(self, a)
    except NotImplementedError:  # A symbolic tensor is no array.
      nest = sys.modules["tensorflow"].nest
      return to_array(self, nest.map_structure(self._GetNdArray, a))

  return evaluate


def _predict_classes(
  self: Any, x: Any, batch_size: int = 32, verbose: int = 0
) -> Any:
  """Returns the class of each example: int64, or int32 for one output."""
  found = self.predict(x, batch_size=batch_size, verbose=verbose)
  if found.shape[-1] > 1:
    return found.argmax(axis=-1)
  return (found > 0.5).astype("int32")


def multi_gpu_model(*args: Any, **kwargs: Any) -> NoReturn:
  """Raises an error: Keras has no such function since TensorFlow 2.4.

  Raises:
    NotImplementedError: Always.
  """
  raise NotImplementedError(
    "multi_gpu_model went with TensorFlow 2.4: create and compile the model in "
    "`with tf.distribute.MirroredStrategy().scope():`"
  )


def _explain_tensorboard(self: Any, summary_api: str) -> None:
  """Constructs the error that `tf.summary` raises."""
  reason = missing_names.explain("tensorboard")
  self.error_message = f"{summary_api} needs TensorBoard. {reason}"
  Exception.__init__(self, self.error_message)


class _Old(property):
  """An option that moved."""


def _find_dropped(self: Any, name: str) -> Any:
  """Returns what an option that does nothing is at first; says that it is one.

  This is a `__getattr__`. What a program sets then, TensorFlow keeps.
  """
  kind = type(self).__name__
  if name not in _DROPPED.get(kind, "").split():
    raise AttributeError(f"{kind} has no {name}", name=name, obj=self)
  if not _said and os.environ.get(legacy_names.QUIET) != "1":
    print(
      f"tf_compat_lossscale: {name} of tf.data's {kind} does nothing: "
      "TensorFlow has dropped it there, and others of the kind",
      file=sys.stderr,
    )
  _said.append(name)
  if name not in _NESTED:
    return None
  value = types.SimpleNamespace()
  object.__setattr__(self, name, value)
  return value


def _list_options(real: types.ModuleType) -> Iterator[_Change]:
  """Yields what `tensorflow.compat.v2` lacks in its classes of options."""
  options = real.data.Options
  distribute = type(options().experimental_distribute)
  for owner in (options, type(options().experimental_optimization)):
    yield owner, "__getattr__", _find_dropped
  yield options, "experimental_autotune", _make_option("autotune", "enabled")
  for name in _MOVED.split():
    option = _make_option("experimental_optimization", name)
    yield options, f"experimental_{name}", option
  policies = real.data.experimental.AutoShardPolicy
  auto_shard = _Old(
    lambda self: self.auto_shard_policy != policies.OFF,
    lambda self, value: setattr(
      self, "auto_shard_policy", policies.AUTO if value else policies.OFF
    ),
  )
  yield distribute, "auto_shard", auto_shard


def _make_option(part: str, name: str) -> _Old:
  return _Old(
    lambda self: getattr(getattr(self, part), name),
    lambda self, value: setattr(getattr(self, part), name, value),
  )


def _copy_options(options: Any) -> Any:
  """Returns options of the same values, nested ones copied, too."""
  copy = type(options)()
  for name, option in vars(type(options)).items():
    value = getattr(options, name) if type(option) is property else None
    if isinstance(value, type(options).__mro__[1]):
      value = _copy_options(value)
    if value is not None:
      setattr(copy, name, value)
  return copy


def allow_changes(real: types.ModuleType) -> None:
  """Makes `Dataset.options()` return options that a program may change."""
  dataset = real.compat.v2.data.Dataset
  own = dataset.options
  dataset.options = functools.wraps(own)(lambda self: _copy_options(own(self)))
