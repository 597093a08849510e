# SPDX-License-Identifier: Apache-2.0
"""Prepares the Python processes of `tf-lossscale run`, and their children.

Python imports the module of this name at start. This one is first on Python's
path. It prepares the process as the environment asks, then imports the next
`sitecustomize`, if there is one. Other versions of Python may import this
module, too, so its syntax is valid in all of them.
"""

import importlib
import os
import sys
import types  # noqa: F401


def _start():
  # type: () -> None
  here = os.path.dirname(os.path.abspath(__file__))
  sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
  mode = os.environ.get("TF_COMPAT_LOSSSCALE_RUN")
  if mode in ("auto", "tf1", "tf2") and sys.version_info >= (3, 10):
    # The package may be used without being installed: then its folder is on the
    # path during this import alone, and last.
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    sys.path.append(root)
    try:
      from tf_compat_lossscale.programs import import_hooks
    finally:
      sys.path.reverse()
      sys.path.remove(root)
      sys.path.reverse()

    if mode == "auto":
      # By its name: `launch` needs this file, and modules must not import each
      # other.
      launch = importlib.import_module("tf_compat_lossscale.programs.launch")
      try:
        launch.decide_in_process()
      except launch.RunError as error:
        sys.stderr.write("tf-lossscale run: " + str(error) + "\n")
        sys.stderr.flush()
        os._exit(2)  # Python would go on after an error here.
      mode = os.environ["TF_COMPAT_LOSSSCALE_RUN"]

    def prepare(tensorflow):
      # type: (types.ModuleType) -> None
      from tf_compat_lossscale.programs import tensorflow1

      if mode == "auto":
        launch.say_undecided()
      tensorflow1.prepare(tensorflow, mode == "tf1")

    def prepare_library(module):
      # type: (types.ModuleType) -> None
      from tf_compat_lossscale.programs import old_libraries

      old_libraries.prepare(module)

    absl = "absl.flags._argument_parser"
    for name in ("collections", "inspect", "numpy", absl):
      import_hooks.when_imported(name, prepare_library)
    is_quiet = os.environ.get("TF_COMPAT_LOSSSCALE_QUIET") == "1"
    import_hooks.when_imported("tensorflow", prepare, is_quiet)
  ours = sys.modules.pop("sitecustomize")
  try:
    import sitecustomize  # noqa: F401
  except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
      raise
  sys.modules.setdefault("sitecustomize", ours)


_start()
