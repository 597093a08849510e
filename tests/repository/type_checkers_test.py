# SPDX-License-Identifier: Apache-2.0
"""Tests what mypy says of a program that uses this package."""

import importlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv

import helpers
import numpy as np
import pytest

import tf_compat_lossscale as tfl

# A program of a user. mypy must refuse the lines that end in `# wrong` and no
# others. TensorFlow has no types, so its objects are Any.
_PROGRAM = """
from typing import Any

import numpy as np

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import contrib
from tf_compat_lossscale import gradients
from tf_compat_lossscale import keras
from tf_compat_lossscale import policies
from tf_compat_lossscale import DynamicLossScal  # wrong
from tf_compat_lossscale.monitoring import LosScaleHook  # wrong
import tf_compat_lossscale.kears  # wrong


def use(opt: Any, word: str) -> None:
  print(tfl.__version__)
  tfl.DynamicLossScal()  # wrong
  tfl.monitorin  # wrong
  tfl.monitoring.Bogus()  # wrong
  checkpoint.Savr()  # wrong
  gradients.unscal  # wrong
  keras.LossScaleOptimiser  # wrong
  policies.GrowthBackof  # wrong

  tfl.DynamicLossScale(np.float32(8), increment_period=np.int64(2000))
  tfl.DynamicLossScale(increment_perid=2000)  # wrong
  tfl.FixedLossScale("8")  # wrong
  tfl.get("dynamic").good_steps.assign(0)
  tfl.get("dynamc")  # wrong
  tfl.get(word)  # wrong
  own = tfl.MixedPrecisionLossScaleOptimizer(opt, "dynamic")
  own.minimize(opt.loss, global_step=opt.step)
  own.apply_gradients([(g * 2, v) for g, v in own.compute_gradients(opt.loss)])
  own.apply_gradients([], step=opt.step)  # wrong
  tfl.MixedPrecisionLossScaleOptimizer(opt, None)  # wrong
  tfl.accumulate(own, 8, mean=False).steps.bit_length()
  tfl.accumulate(own, 8, drop="window")  # wrong
  tfl.enable_mixed_precision_graph_rewrite(opt, "fixed")  # wrong
  tfl.honor_environment(loud=True)  # wrong
  gradients.all_finite()  # wrong
  manager = contrib.ExponentialUpdateLossScaleManager(2**15, 2000)
  contrib.LossScaleOptimizer(opt, manager, sparse="keep").minimize(opt.loss)
  contrib.LossScaleOptimizer(opt, manager, sparse="sparse")  # wrong
  policies.GrowthBackoff(refill="finite", at_minimum="raise")
  policies.GrowthBackoff(refill=["growth", "backoff"], at_minimum="stay")
  policies.GrowthBackoff(at_minimum="fail")  # wrong
  checkpoint.restore(opt, "model.ckpt", missing="initialize")
  checkpoint.restore(opt, "model.ckpt", missing="initialise")  # wrong
  checkpoint.convert("model.ckpt", "new")  # wrong
  tfl.monitoring.LossScaleHook(opt, on_stuck="stop").begin()
  tfl.monitoring.LossScaleHook(opt, on_stuck="halt")  # wrong
  keras.LossScaleOptimizer(opt, tfl.FixedLossScale(8)).apply_gradients([])
  keras.LossScaleOptimizer(opt, "dynamc")  # wrong
  keras.Policy("mixed_float61")  # wrong


class Mine(tfl.LossScale):
  def __call__(self) -> Any:
    return self._get_weight("mine")

  def update(self, grads: Any) -> tuple[Any, bool]:
    return None, True

  def get_config(self) -> dict[str, Any]:
    return {}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
  """Returns a Python that has this package, as pip installs it, and NumPy."""
  folder = tmp_path_factory.mktemp("environment")
  venv.create(folder, symlinks=True)
  site = sysconfig.get_path(
    "purelib", vars={"base": str(folder), "platbase": str(folder)}
  )
  package = helpers.ROOT / "tf_compat_lossscale"
  for each in (package, pathlib.Path(np.__file__).parent):
    os.symlink(each, os.path.join(site, each.name))
  return folder / "bin" / "python"


@pytest.mark.thorough
@pytest.mark.any_release
def test_mypy_refuses_exactly_what_is_wrong(python, tmp_path):
  pytest.importorskip("mypy", reason="the extra [lint] is not installed")
  text = _PROGRAM
  for name in ["", *(f".{x}" for x in dir(tfl) if x not in tfl.__all__)]:
    module = importlib.import_module(f"{tfl.__name__}{name}")
    text += "".join(f"tfl{name}.{each}\n" for each in module.__all__)
  (tmp_path / "program.py").write_text(text)
  command = [sys.executable, "-m", "mypy", "--strict", "--implicit-reexport"]
  done = subprocess.run(
    [*command, f"--python-executable={python}", "program.py"],
    capture_output=True,
    cwd=tmp_path,
    text=True,
    timeout=120,
  )
  refused = re.findall(r"^program\.py:(\d+): error", done.stdout, re.MULTILINE)
  lines = enumerate(text.splitlines(), 1)
  wrong = {number for number, line in lines if line.endswith("# wrong")}
  assert {*map(int, refused)} == wrong, done.stdout
