# SPDX-License-Identifier: Apache-2.0
"""Private names of TensorFlow that need no more than a look-up.

And the Estimator's row in TensorFlow's table of packages that export names.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from typing import Any


def find_private(module: str, name: str) -> Any:
  """Returns a name of a module below `tensorflow.python`, or None."""
  try:
    return getattr(importlib.import_module(f"tensorflow.python.{module}"), name)
  except (AttributeError, ImportError):
    return None


def silence_deprecations() -> contextlib.AbstractContextManager[None]:
  """Returns a context in which TensorFlow warns of no deprecated name.

  The package uses deprecated names on purpose. The public
  `tf.get_logger().setLevel` would silence all other warnings, too. In a release
  without the private function, TensorFlow warns.
  """
  silence = find_private("util.deprecation", "silence")
  return contextlib.nullcontext() if silence is None else silence()


def list_namespaces(module: types.ModuleType) -> list[dict[str, Any]]:
  """Returns the dictionaries in which a module looks a name up.

  `setattr` and `delattr` also change a cache and `__all__`, and `delattr` of a
  name that was read makes TensorFlow 2.15 crash. There is no public way to the
  module that is wrapped. In a release without wrappers, only the module's own
  dictionary is returned.
  """
  own = vars(module)
  wrapped = own.get("_tfmw_wrapped_module")
  return [own] if wrapped is None else [own, vars(wrapped)]


def find_saved_objects(saver: Any) -> Any:
  """Returns the variables and other objects that a Saver was told to save.

  `Saver` keeps its argument `var_list` in a private attribute. A public reader
  would replace this function. In a release without the attribute the Saver's
  ops tell the same, as for a Saver of a MetaGraph.

  Returns:
    A list, or a dict from keys to them; None if there is no such list.
  """
  return getattr(saver, "_var_list", None)


def add_estimator() -> None:
  """Adds the Estimator to TensorFlow's table of packages that export names.

  Releases up to 2.15 had that row, and tensorflow_estimator needs it.
  `@tf_export` writes the names of an exported class into the class, into
  attributes that this table lists for each package. The table has no public
  name. Without the table, this function raises AttributeError.
  """
  exports = find_private("util", "tf_export")
  tables = ((exports.API_ATTRS, ""), (exports.API_ATTRS_V1, "_v1"))
  for table, suffix in tables:
    make = type(table["tensorflow"])
    names = (
      f"_estimator_api_names{suffix}",
      f"_estimator_api_constants{suffix}",
    )
    table.setdefault("estimator", make(*names))
  exports.ESTIMATOR_API_NAME = "estimator"


def remove_estimator() -> None:
  """Removes that row again. What is exported already stays as it is."""
  exports = find_private("util", "tf_export")
  exports.API_ATTRS.pop("estimator", None)
  exports.API_ATTRS_V1.pop("estimator", None)
  vars(exports).pop("ESTIMATOR_API_NAME", None)
