# SPDX-License-Identifier: Apache-2.0
"""Runs a program as `tf-lossscale run` does, if TensorFlow is loaded already.

  python legacy_runner.py [--tf1 | --tf2] [--keras2 | --keras3]
      [--keras-optimizers=new | --keras-optimizers=legacy] SCRIPT ARGS...

This runs in a forked process, which need not import TensorFlow. Nevertheless
the program's first `import tensorflow` goes through the import hooks, as in a
new process.
"""

import importlib.machinery
import os
import runpy
import sys

import tensorflow as tf

from tf_compat_lossscale.legacy import run

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

  def find_spec(self, name, path=None, target=None):
    if name == "tensorflow":
      return importlib.machinery.ModuleSpec(name, self)
    return None

  def create_module(self, spec):
    return None

  def exec_module(self, module):
    sys.modules[module.__spec__.name] = tf


def main():
  args, chosen = sys.argv[1:], {}
  while args[0] in _OPTIONS:
    chosen.update(_OPTIONS[args.pop(0)])
  path, *args = args
  folder = os.path.dirname(os.path.abspath(path))
  env = run.make_environment(run.choose(path, [folder], **chosen))
  # The fork server's TensorFlow has read the variable already. TensorFlow takes
  # a missing variable for "0".
  assert env.get(_KERAS, "0") == os.environ.get(_KERAS, "0"), (
    "the test must set KERAS_2"
  )
  os.environ.update(env)
  for name in list(sys.modules):
    if name == "tensorflow" or name.startswith("tf_compat_lossscale"):
      del sys.modules[name]
  sys.meta_path.insert(0, _LoadedTensorFlow())
  sys.modules.pop("sitecustomize", None)
  sys.path.insert(0, run._SITE)
  importlib.import_module("sitecustomize")
  sys.argv = [path, *args]
  sys.path.insert(0, folder)
  runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
  main()
