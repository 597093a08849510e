# SPDX-License-Identifier: Apache-2.0
"""Methods and functions that TensorFlow 2.0 to 2.10 had or that changed.

`install` sets them when the module of their class has loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import functools
import random
import re
import sys
from typing import Any
from typing import NoReturn

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import missing_names

_Change = tuple[Any, str, Any]

_KERAS = re.compile(
  r"(?:tf_)?keras(?:\.src)?\."
  r"(backend|engine\.sequential|mixed_precision\.policy)"
)
_TENSORBOARD = "tensorflow.python.summary.tb_summary"
_seeds: list[Any] = []  # The last argument of `tf.random.set_seed`, if any.


def is_watched(name: str) -> bool:
  """Returns whether `list_changes` may have something for a module."""
  return name == _TENSORBOARD or _KERAS.fullmatch(name) is not None


def list_changes(name: str, module: Any) -> Iterator[_Change]:
  """Yields (owner, attribute, value) for what a loaded module lacks.

  Args:
    name: The module's name: one that is watched, or "tensorflow".
    module: The module.
  """
  match = _KERAS.fullmatch(name)
  if name == "tensorflow":
    yield from _list_in_tensorflow(module)
  elif name == _TENSORBOARD:
    yield module.TBNotInstalledError, "__init__", _explain_tensorboard
  elif match is None:
    return
  elif match[1] == "backend":
    _seed_keras()
  elif match[1] == "engine.sequential":
    for method in (_predict_classes, _predict_proba):
      name = method.__name__[1:]
      if not hasattr(module.Sequential, name):
        yield module.Sequential, name, method
  elif not hasattr(module.Policy, "should_cast_variables"):
    yield module.Policy, "should_cast_variables", property(_casts_variables)


def _list_in_tensorflow(tensorflow: Any) -> Iterator[_Change]:
  v1, v2 = tensorflow.compat.v1, tensorflow.compat.v2
  methods: dict[str, Callable[..., Any]] = {
    "experimental_run_v2": (
      lambda self, fn, args=(), kwargs=None, options=None: self.run(
        fn, args, kwargs, options
      )
    ),
    # What distributes a dataset copies it to the workers.
    "experimental_make_numpy_dataset": (
      lambda self, numpy_input: v2.data.Dataset.from_tensor_slices(numpy_input)
    ),
    "experimental_distribute_datasets_from_function": (
      lambda self, dataset_fn, options=None: (
        self.distribute_datasets_from_function(dataset_fn, options)
      )
    ),
  }
  for strategy in (v1.distribute.Strategy, v2.distribute.Strategy):
    for name, method in methods.items():
      if not hasattr(strategy, name):
        yield strategy, name, method
  set_seed = _seed_keras_too(v2.random.set_seed)
  for owner in {id(m): m for m in (tensorflow.random, v2.random)}.values():
    if hasattr(owner, "set_seed"):  # TensorFlow 1 has none.
      yield owner, "set_seed", set_seed


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
  module: Any = sys.modules.get(f"{which_keras.find_keras_2()}.backend")
  if _seeds and hasattr(module, "_SEED_GENERATOR"):
    generator = None if _seeds[0] is None else random.Random(_seeds[0])
    module._SEED_GENERATOR.generator = generator


def _predict_classes(
  self: Any, x: Any, batch_size: int = 32, verbose: int = 0
) -> Any:
  """Returns the class of each example: int64, or int32 for one output."""
  found = self.predict(x, batch_size=batch_size, verbose=verbose)
  if found.shape[-1] > 1:
    return found.argmax(axis=-1)
  return (found > 0.5).astype("int32")


def _predict_proba(
  self: Any, x: Any, batch_size: int = 32, verbose: int = 0
) -> Any:
  """Returns what `predict` returns."""
  return self.predict(x, batch_size=batch_size, verbose=verbose)


def _casts_variables(self: Any) -> bool:
  """Whether layers cast their variables to the dtype that they compute in."""
  return bool(self.variable_dtype != self.compute_dtype)


def multi_gpu_model(*args: Any, **kwargs: Any) -> NoReturn:
  """Raises an error: Keras has no such function since TensorFlow 2.4.

  Raises:
    NotImplementedError: Always.
  """
  del args, kwargs
  raise NotImplementedError(
    "multi_gpu_model went with TensorFlow 2.4: create and compile the model in "
    "`with tf.distribute.MirroredStrategy().scope():`"
  )


def _explain_tensorboard(self: Any, summary_api: str) -> None:
  """The constructor of the error that `tf.summary` raises."""
  reason = missing_names.explain("tensorboard")
  self.error_message = f"{summary_api} needs TensorBoard. {reason}"
  Exception.__init__(self, self.error_message)
