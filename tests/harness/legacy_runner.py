# SPDX-License-Identifier: Apache-2.0
"""Runs a program as `tf-lossscale run` does, if TensorFlow is loaded already.

  python legacy_runner.py [--path=FOLDER] [--tf1 | --tf2] [--keras2 | --keras3]
      [--keras-optimizers=new | --keras-optimizers=legacy]
      (SCRIPT | -m MODULE) ARGS...
  python legacy_runner.py --plain [--path=FOLDER] (SCRIPT | -m MODULE) ARGS...

This runs in a forked process, which need not import TensorFlow. Nevertheless
the program's first `import tensorflow` goes through the import hooks, as in a
new process. FOLDER is put into PYTHONPATH.

With `--plain`, the program runs as Python runs it. If the program imports
TensorFlow with a Keras other than that of the forked process, the process ends
with the exit status OTHER_KERAS.
"""

import importlib.machinery
import os
import runpy
import sys

import tensorflow as tf

from tf_compat_lossscale.programs import launch
from tf_compat_lossscale.programs import program_files

OTHER_KERAS = 87
_KERAS = "TF_USE_LEGACY_KERAS"
_OPTIONS = {
  "--tf1": {"tensorflow": 1},
  "--tf2": {"tensorflow": 2},
  "--keras2": {"keras": 2},
  "--keras3": {"keras": 3},
  "--keras-optimizers=new": {"optimizers": "new"},
  "--keras-optimizers=legacy": {"optimizers": "legacy"},
}


class _LoadedTensorFlow:
  """A finder and loader that gives the TensorFlow that is loaded already."""

  def __init__(self, keras):
    self._keras = keras  # The value of the variable when TensorFlow was loaded.

  def find_spec(self, name, path=None, target=None):
    if name == "tensorflow":
      return importlib.machinery.ModuleSpec(name, self)
    return None

  def create_module(self, spec):
    return None

  def exec_module(self, module):
    if _read_keras() != self._keras:
      os._exit(OTHER_KERAS)
    sys.modules[module.__spec__.name] = tf


def _read_keras():
  # TensorFlow takes a missing variable for "0".
  return os.environ.get(_KERAS, "0")


def _prepare_run(program, chosen):
  """Prepares this process as `tf-lossscale run` does for a program."""
  read = program_files.read_program(program)
  env = launch.make_environment(launch.choose(read, launch.Choice(**chosen)))
  # The fork server's TensorFlow has read the variable already.
  assert env.get(_KERAS, "0") == _read_keras(), "the test must set KERAS_2"
  os.environ.update(env)
  sys.modules.pop("sitecustomize", None)
  sys.path.insert(0, launch._SITE)


def main():
  args, chosen, plain = sys.argv[1:], {}, False
  while args[0].startswith("--"):
    name, _, value = args[0].partition("=")
    if name == "--path":
      sys.path.insert(0, value)
      os.environ["PYTHONPATH"] += os.pathsep + value
    elif name == "--plain":
      plain = True
    else:
      chosen.update(_OPTIONS[args[0]])
    del args[0]
  is_module = args[0] == "-m"
  folder = os.getcwd() if is_module else os.path.dirname(args[0])
  folder = os.path.abspath(folder)
  keras = _read_keras()
  if plain:
    os.environ.pop(_KERAS, None)
  else:
    _prepare_run(args, chosen)
  for name in list(sys.modules):
    if name == "tensorflow" or name.startswith("tf_compat_lossscale"):
      del sys.modules[name]
  sys.meta_path.insert(0, _LoadedTensorFlow(keras))
  if not plain:
    importlib.import_module("sitecustomize")
  sys.argv = args[is_module:]
  sys.path.insert(0, folder)
  if is_module:
    runpy.run_module(args[1], run_name="__main__", alter_sys=True)
  else:
    runpy.run_path(args[0], run_name="__main__")


if __name__ == "__main__":
  main()
