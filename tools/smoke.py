# SPDX-License-Identifier: Apache-2.0
"""Tries the installed package: imports it, trains, and runs its command.

python smoke.py                        # Leaves the checkpoint "saved".
python smoke.py --without-tensorflow   # Reads the checkpoint "saved".
"""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_compat_lossscale as tfl

_COMMAND = pathlib.Path(sys.executable).parent / "tf-lossscale"
_OLD_PROGRAM = """
import tensorflow as tf
with tf.Session() as session:
  print(session.run(tf.train.experimental.FixedLossScale(8)()))
"""


def try_training() -> None:
  """Trains a variable, saves it in "saved", and runs the command."""
  import tensorflow as tf

  tf1 = tf.compat.v1
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=3.0)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(1.0), tfl.DynamicLossScale(8, increment_period=1)
    )
    train_op = opt.minimize(v * v)
    session.run(tf1.global_variables_initializer())
    session.run(train_op)
    assert session.run(opt.loss_scale()) == 16
    assert abs(session.run(v) - 2.0) < 1e-3
    saved = tf1.train.Saver().save(session, "./saved")
  (state,) = tfl.checkpoint.describe(saved).loss_scales
  assert state.value == 16

  assert subprocess.check_output([_COMMAND, "run", "old.py"]) == b"8.0\n"
  assert subprocess.call([_COMMAND, "scan", "old.py"]) == 1
  convert = [_COMMAND, "convert", saved, "new", "--to=fp32", "--overwrite"]
  assert b"dropped: current_loss_scale" in subprocess.check_output(convert)
  print(f"tf_compat_lossscale {tfl.__version__} on {tf.__version__}: ok")


def try_without_tensorflow() -> None:
  """Scans a program, and checks the errors of all that needs TensorFlow."""
  installed = {d.metadata["Name"] for d in importlib.metadata.distributions()}
  assert installed == {"tf_compat_lossscale", "absl-py", "numpy"}, installed
  assert pathlib.Path(tfl.__file__).with_name("py.typed").exists()
  assert subprocess.call([_COMMAND, "scan", "old.py"]) == 1
  for words in (["run", "old.py"], ["inspect", "saved"]):
    done = subprocess.run([_COMMAND, *words], capture_output=True, text=True)
    assert done.returncode == 2, done
    assert "install TensorFlow" in done.stderr, done
    assert done.stderr.count("\n") == 1, done
  try:
    tfl.DynamicLossScale  # noqa: B018
  except ImportError as error:
    assert "install TensorFlow" in str(error)
  else:
    raise AssertionError("DynamicLossScale was imported without TensorFlow")
  print(f"tf_compat_lossscale {tfl.__version__} without TensorFlow: ok")


package = pathlib.Path(tfl.__file__).parent
assert "site-packages" in package.parts, package
assert pathlib.Path(sys.prefix) in package.parents, package
assert (package / "py.typed").exists()
pathlib.Path("old.py").write_text(_OLD_PROGRAM, "utf-8")
if sys.argv[1:] == ["--without-tensorflow"]:
  try_without_tensorflow()
else:
  try_training()
