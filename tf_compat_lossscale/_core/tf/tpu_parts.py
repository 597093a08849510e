# SPDX-License-Identifier: Apache-2.0
"""The parts of `tensorflow.python.tpu` that only TPUEstimator needed.

The package `tensorflow_estimator` imports `tensorflow.python.tpu.tpu_embedding`
and two more modules, which TensorFlow lacks since 2.16. This module stands in
for all of them. On a CPU or GPU, TPUEstimator reads nothing of these classes
but their types. What ran on TPUs alone is not here.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from typing import NoReturn

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf

# The last arguments of every optimizer's class, with their default values.
_COMMON = {
  "use_gradient_accumulation": True,
  "clip_weight_min": None,
  "clip_weight_max": None,
  "weight_decay_factor": None,
  "multiply_weight_decay_factor_by_learning_rate": None,
  "clip_gradient_min": None,
  "clip_gradient_max": None,
}


class OptimizationParameters:
  """The arguments of an optimizer of embeddings, as attributes."""

  def __post_init__(self) -> None:
    """Checks the arguments.

    Raises:
      ValueError: The arguments contradict each other.
    """
    settings = vars(self)
    limits = settings["clip_gradient_min"], settings["clip_gradient_max"]
    if limits != (None, None) and not settings["use_gradient_accumulation"]:
      raise ValueError(
        f"clip_gradient_min={limits[0]} and clip_gradient_max={limits[1]} need "
        "use_gradient_accumulation=True"
      )


def _make_class(name: str, required: str, **defaults: Any) -> type:
  """Returns the class of an optimizer of embeddings.

  Args:
    name: The class's name.
    required: The arguments without a default value.
    **defaults: The arguments with one, before those of `_COMMON`.
  """
  optional = {**defaults, **_COMMON}
  return dataclasses.make_dataclass(
    name,
    [*required.split(), *((key, Any, optional[key]) for key in optional)],
    bases=(OptimizationParameters,),
  )


AdagradParameters = _make_class(
  "AdagradParameters", "learning_rate", initial_accumulator=0.1
)
AdamParameters = _make_class(
  "AdamParameters",
  "learning_rate",
  beta1=0.9,
  beta2=0.999,
  epsilon=1e-08,
  lazy_adam=True,
  sum_inside_sqrt=True,
)
FtrlParameters = _make_class(
  "FtrlParameters",
  "learning_rate",
  learning_rate_power=-0.5,
  initial_accumulator_value=0.1,
  l1_regularization_strength=0.0,
  l2_regularization_strength=0.0,
  multiply_linear_by_learning_rate=False,
  beta=0,
  allow_zero_accumulator=False,
)
MomentumParameters = _make_class(
  "MomentumParameters", "learning_rate momentum", use_nesterov=False
)
ProximalAdagradParameters = _make_class(
  "ProximalAdagradParameters",
  "learning_rate",
  initial_accumulator=0.1,
  l1_regularization_strength=0.0,
  l2_regularization_strength=0.0,
)
RMSPropParameters = _make_class(
  "RMSPropParameters", "learning_rate rho momentum epsilon"
)
StochasticGradientDescentParameters = _make_class(
  "StochasticGradientDescentParameters", "learning_rate"
)


@dataclasses.dataclass
class TableConfig:
  """A table of embeddings."""

  vocabulary_size: int
  dimension: int
  initializer: Any = None
  combiner: str | None = "mean"
  hot_id_replication: bool = False
  learning_rate: float | None = None
  learning_rate_fn: Any = None
  optimization_parameters: OptimizationParameters | None = None


@dataclasses.dataclass
class FeatureConfig:
  """A feature that is looked up in a table of embeddings."""

  table_id: str
  max_sequence_length: int = 0
  weight_key: str | None = None


def __getattr__(name: str) -> NoReturn:
  """Says why a name is missing."""
  raise AttributeError(
    f"TensorFlow {tf.__version__} has no {name!r} for Estimators on TPUs: "
    "train them on TensorFlow 2.15 or older, or on a CPU or GPU with "
    "use_tpu=False",
    name=name,
  )
