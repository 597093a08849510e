"""Tries the installed package: imports it, trains, and looks at its files."""

import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

import tf_compat_lossscale as tfl

package = pathlib.Path(tfl.__file__).parent
assert "site-packages" in package.parts, package
assert (package / "py.typed").exists()

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

pathlib.Path("old.py").write_text(
  "import tensorflow as tf\n"
  "with tf.Session() as session:\n"
  "  print(session.run(tf.train.experimental.FixedLossScale(8)()))\n"
)
command = pathlib.Path(sys.executable).parent / "tf-lossscale"
assert subprocess.check_output([command, "run", "old.py"]) == b"8.0\n"
assert subprocess.run([command, "scan", "old.py"]).returncode == 1
convert = [command, "convert", saved, "new", "--to=fp32", "--overwrite"]
assert b"dropped: current_loss_scale" in subprocess.check_output(convert)
print(
  f"tf_compat_lossscale {tfl.__version__} on TensorFlow {tf.__version__}: ok"
)
