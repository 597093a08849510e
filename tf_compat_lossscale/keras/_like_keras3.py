# SPDX-License-Identifier: Apache-2.0
"""Finds optimizers and schedules of Keras 3 that do the same as Keras 2's."""

from __future__ import annotations

from collections.abc import Callable
import inspect
import math
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.keras import _keras2

_k2 = _keras2.keras


class Slot(NamedTuple):
  """A value that an optimizer keeps for each variable, and its names.

  Attributes:
    keras3: The list of an optimizer of Keras 3.
    newer: The list of a newer optimizer of Keras 2.
    legacy: The slot's name in a legacy optimizer, or None.
    needs: A hyperparameter; if it is 0, a newer optimizer does not use the
      slot.
  """

  keras3: str
  newer: str
  legacy: str | None
  needs: str | None = None


_MOMENT = Slot("_momentums", "_momentums", "m")
_SECOND_MOMENT = Slot("_velocities", "_velocities", "v")
_ACCUMULATOR = Slot("_accumulators", "_accumulators", "accumulator")
_ADAM = (
  _MOMENT,
  _SECOND_MOMENT,
  Slot("_velocity_hats", "_velocity_hats", "vhat"),
)
EMA = "_model_variables_moving_average"

_SLOTS: dict[str, tuple[Slot, ...]] = {
  "SGD": (Slot("momentums", "momentums", "momentum", needs="momentum"),),
  "Adam": _ADAM,
  "AdamW": _ADAM,
  "Adamax": (Slot("_m", "_m", "m"), Slot("_u", "_u", "v")),
  "Adagrad": (_ACCUMULATOR,),
  "Adadelta": (
    Slot("_accumulated_grads", "_accumulated_grads", "accum_grad"),
    Slot("_accumulated_delta_vars", "_accumulated_delta_vars", "accum_var"),
  ),
  "RMSprop": (
    Slot("_velocities", "_velocities", "rms"),
    Slot("_momentums", "_momentums", "momentum"),
    Slot("_average_gradients", "_average_gradients", "mg"),
  ),
  "Nadam": (_MOMENT, _SECOND_MOMENT),
  "Ftrl": (_ACCUMULATOR, Slot("_linears", "_linears", "linear")),
  "Adafactor": tuple(Slot(name, name, None) for name in ("_r", "_c", "_v")),
  "Lion": (Slot("_momentums", "momentums", None),),
}

# Values that an optimizer keeps once: (Keras 3's, newer, legacy) attribute.
SCALARS = {"Nadam": ("_u_product", "_u_product", "_m_cache")}

_SCHEDULES = (
  "ExponentialDecay",
  "PiecewiseConstantDecay",
  "PolynomialDecay",
  "InverseTimeDecay",
  "CosineDecay",
  "CosineDecayRestarts",
)

# Two optimizers count as alike if variables differ by less than this after a
# step. float32 rounds to 1e-7.
_TOLERANCE = 1e-5


def list_slots(name: str) -> tuple[Slot, ...]:
  """Returns the slots of the optimizer of that name, averages included.

  Raises:
    ValueError: No optimizer of Keras 2 has that name.
  """
  if name not in _SLOTS:
    raise ValueError(f"Keras 2 has no optimizer of the name {name!r}.")
  return (*_SLOTS[name], Slot(EMA, EMA, None))


def is_of_keras2(optimizer: Any) -> bool:
  """Returns whether an optimizer is of Keras's own class, not a subclass."""
  name = type(optimizer).__name__
  # `_k2.optimizers` may have the legacy classes: `install` can do that.
  own = _k2.optimizers
  places = (own, own.experimental, own.legacy)
  return name in _SLOTS and any(
    type(optimizer) is getattr(place, name, None) for place in places
  )


def find_optimizer(keras: Any, optimizer: Any) -> Callable[[], Any]:
  """Finds the Keras 3 optimizer that does the same as a Keras 2 optimizer.

  Args:
    keras: Keras 3.
    optimizer: An optimizer of Keras 2.

  Returns:
    A function that makes a new optimizer, without slots.

  Raises:
    ValueError: Keras 3 has no such optimizer, or its optimizer cannot do the
      same as `optimizer`.
  """
  name = type(optimizer).__name__
  cls = getattr(keras.optimizers, name, None)
  if cls is None or not is_of_keras2(optimizer):
    raise ValueError(
      "Keras 3 has no counterpart to the optimizer "
      f"{type(optimizer).__module__}.{type(optimizer).__qualname__}: pass an "
      "optimizer of your choice as optimizer=…."
    )
  found = _keras2.find_hyperparameters(optimizer)
  for key, value in found.items():
    if callable(value) and not _is_schedule(value):
      raise _make_refusal(
        name,
        f"{key} is a function ({value!r}), which may return another number at "
        "each step",
      )
  rate = found["learning_rate"]
  make_rate = _find_schedule(keras, name, rate) if callable(rate) else None
  config = dict(optimizer.get_config())
  if make_rate is not None:
    del config["learning_rate"]
  _refuse_other_mathematics(name, optimizer, config)
  known = set(inspect.signature(cls).parameters) - {"name", "kwargs"}
  ignored = {"is_legacy_optimizer", "jit_compile", "name", *known}
  lost = {
    key: value
    for key, value in config.items()
    if key not in ignored and value not in (None, 0, False)
  }
  if lost:
    raise _make_refusal(name, f"Keras 3's takes no {lost!r}")
  arguments = {key: _to_plain(config[key]) for key in known & set(config)}
  for key, value in arguments.items():
    if type(value) is int and key != "ema_overwrite_frequency":
      arguments[key] = float(value)  # Keras 3 takes no integers here.

  def make() -> Any:
    if make_rate is not None:
      arguments["learning_rate"] = make_rate()
    return cls(**arguments)

  return make


def _refuse_other_mathematics(
  name: str, optimizer: Any, config: dict[str, Any]
) -> None:
  """Checks that Keras 3's optimizer of that name computes the same.

  Removes from `config` the entries that these checks settle.

  Raises:
    ValueError: Keras 3's optimizer computes something else.
  """
  legacy = isinstance(optimizer, _keras2.LegacyOptimizer)
  clips = [
    key
    for key in ("clipnorm", "clipvalue", "global_clipnorm")
    if config.get(key) is not None
  ]
  if len(clips) > 1:
    raise _make_refusal(name, f"Keras 3 clips in one way, but has {clips}")
  if legacy and getattr(optimizer, "gradient_transformers", None):
    raise _make_refusal(name, "Keras 3 has no gradient_transformers")
  if getattr(optimizer, "adaptive_epsilon", False):
    raise _make_refusal(name, "Keras 3 has no adaptive_epsilon")
  if legacy and name == "RMSprop" and not config["momentum"]:
    raise _make_refusal(
      name,
      "without momentum, the legacy one divides by sqrt(mean square) + "
      "epsilon, but Keras 3 by sqrt(mean square + epsilon)",
    )
  if legacy and name == "Adagrad":
    least, epsilon = config["initial_accumulator_value"], config["epsilon"]
    root = math.sqrt(least)
    if epsilon > _TOLERANCE * min(root, 2 * least):
      raise _make_refusal(
        name,
        "the legacy one divides by sqrt(accumulator) + epsilon, but Keras 3 by "
        "sqrt(accumulator + epsilon), which matters for so small an "
        f"initial_accumulator_value as {least} (epsilon is {epsilon})",
      )
  if legacy and name == "Nadam" and config.pop("decay") != 1:
    raise _make_refusal(
      name,
      "the legacy one has another schedule of momentum (schedule_decay is not "
      "1)",
    )


def _find_schedule(keras: Any, optimizer: str, rate: Any) -> Callable[[], Any]:
  """Finds the Keras 3 schedule that does the same as a Keras 2 schedule."""
  name = type(rate).__name__
  cls = getattr(keras.optimizers.schedules, name, None)
  own = getattr(_k2.optimizers.schedules, name, None)
  if name not in _SCHEDULES or type(rate) is not own or cls is None:
    raise _make_refusal(
      optimizer,
      f"its learning rate is a schedule that Keras does not have ({rate!r})",
    )
  # Keras 3 has defaults of its own for arguments that are None, such as `name`.
  config = {
    key: _to_plain(value)
    for key, value in rate.get_config().items()
    if value is not None
  }
  lost = set(config) - set(inspect.signature(cls).parameters)
  if any(config[key] for key in lost):
    raise _make_refusal(optimizer, f"Keras 3's {name} takes no {sorted(lost)}")
  return lambda: cls(**{k: v for k, v in config.items() if k not in lost})


def _is_schedule(value: Any) -> bool:
  return isinstance(value, _k2.optimizers.schedules.LearningRateSchedule)


def _to_plain(value: Any) -> Any:
  """Converts numbers of NumPy, tensors and lists of them to Python numbers."""
  if isinstance(value, (list, tuple)):
    return [_to_plain(element) for element in value]
  if hasattr(value, "numpy"):
    value = value.numpy()
  return getattr(value, "item", lambda: value)()


def _make_refusal(name: str, why: str) -> ValueError:
  """Makes the error for an optimizer that Keras 3 cannot continue."""
  return ValueError(
    f"Keras 3's {name} cannot go on as this {name} of Keras 2 does: {why}. "
    "Pass an optimizer of your choice as optimizer=…."
  )
