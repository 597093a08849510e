"""Runs a TensorFlow 1 program, untouched, on today's TensorFlow.

  python examples/run_legacy.py PROGRAM [ARGUMENTS...]

In the program `import tensorflow` gives `tf.compat.v1`, with this package's
names where TensorFlow 1.15 had them.
"""

import importlib.metadata
import importlib.util
import os
import runpy
import sys
import types

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
_RELEASE = importlib.metadata.version("tensorflow").split(".")
if tuple(map(int, _RELEASE[:2])) >= (2, 16):
  # `tf.layers` is Keras 2; with this set, `tf.keras` is the one of `tf_keras`.
  if importlib.util.find_spec("tf_keras") is None:
    print(
      "run_legacy: Keras 2 is missing: pip install "
      f"'tf_keras=={'.'.join(_RELEASE[:2])}.*'",
      file=sys.stderr,
    )
    sys.exit(2)
  os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow.compat.v1 as tf

import tf_compat_lossscale as tfl


def main() -> None:
  if len(sys.argv) < 2:
    sys.exit(f"usage: {sys.argv[0]} PROGRAM [ARGUMENTS...]")
  program = sys.argv[1]
  if not os.path.isfile(program):
    print(f"run_legacy: no program at {program!r}", file=sys.stderr)
    sys.exit(2)
  tf.disable_v2_behavior()
  experimental = types.ModuleType("tensorflow.train.experimental")
  for name in tfl.__all__:
    setattr(experimental, name, getattr(tfl, name))
  tf.train.experimental = experimental
  sys.modules["tensorflow"] = tf
  del sys.argv[0]
  sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
  runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
  main()
