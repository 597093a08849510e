# SPDX-License-Identifier: Apache-2.0
"""Private names of TensorFlow that need no more than a look-up."""

from __future__ import annotations

import contextlib
import importlib
import types
from typing import Any


def find_private(module: str, name: str) -> Any:
  """Returns a name of a private module, or None if a release lacks the name.

  Args:
    module: The module, relative to `tensorflow.python`.
    name: A name that the module may define.
  """
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
