# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's table of the packages that export names: the Estimator's row."""

from __future__ import annotations

from typing import Any

from tensorflow.python.util import tf_export

_NAME = "estimator"


def add_estimator() -> None:
  """Adds the row that releases up to 2.15 had; tensorflow_estimator needs it.

  `@tf_export` writes the names of an exported class into the class, into
  attributes that this table lists for each package. The table has no public
  name. Without the table, this function raises AttributeError.
  """
  for table, suffix in _tables():
    make = type(table["tensorflow"])
    names = (
      f"_estimator_api_names{suffix}",
      f"_estimator_api_constants{suffix}",
    )
    table.setdefault(_NAME, make(*names))
  tf_export.ESTIMATOR_API_NAME = _NAME


def remove_estimator() -> None:
  """Removes that row again. What is exported already stays as it is."""
  for table, _ in _tables():
    table.pop(_NAME, None)
  vars(tf_export).pop("ESTIMATOR_API_NAME", None)


def _tables() -> tuple[tuple[dict[str, Any], str], ...]:
  """Returns the tables of TensorFlow 2 and 1, each with its suffix of names."""
  return ((tf_export.API_ATTRS, ""), (tf_export.API_ATTRS_V1, "_v1"))
