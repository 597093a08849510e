"""Starts Python processes that `tf-lossscale run` began, and their children.

Python imports a module of this name at start. This one stands before others,
prepares what its environment asks for, and lets the next one have its turn.
Other Pythons may come by here, so it is written for all of them.
"""

import os
import sys


def _start():
  here = os.path.dirname(os.path.abspath(__file__))
  sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
  mode = os.environ.get("TF_COMPAT_LOSSSCALE_RUN")
  if mode in ("tf1", "tf2") and sys.version_info >= (3, 10):
    # At the end, and only now: the package may be run from where it is not
    # installed.
    root = os.path.dirname(os.path.dirname(here))
    sys.path.append(root)
    try:
      from tf_compat_lossscale.legacy import import_hooks as _imports
    finally:
      sys.path.reverse()
      sys.path.remove(root)
      sys.path.reverse()

    def prepare(tensorflow):
      from tf_compat_lossscale.legacy import tensorflow1

      tensorflow1.prepare(tensorflow, v1=mode == "tf1")

    _imports.when_imported("tensorflow", prepare)
  ours = sys.modules.pop("sitecustomize")
  try:
    import sitecustomize  # noqa: F401
  except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
      raise
  sys.modules.setdefault("sitecustomize", ours)


_start()
