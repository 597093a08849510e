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


class OptimizationParameters:
  """The arguments of an optimizer of embeddings, which a TPU alone reads."""

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    """Takes any arguments."""
    self.args, self.kwargs = args, kwargs


class AdagradParameters(OptimizationParameters):
  """Those of Adagrad."""


class AdamParameters(OptimizationParameters):
  """Those of Adam."""


class FtrlParameters(OptimizationParameters):
  """Those of Ftrl."""


class MomentumParameters(OptimizationParameters):
  """Those of Momentum."""


class ProximalAdagradParameters(OptimizationParameters):
  """Those of proximal Adagrad."""


class RMSPropParameters(OptimizationParameters):
  """Those of RMSProp."""


class StochasticGradientDescentParameters(OptimizationParameters):
  """Those of gradient descent."""


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
