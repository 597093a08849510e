# SPDX-License-Identifier: Apache-2.0
"""Tests what mypy and pyright say of a program that uses this package."""

import importlib
import importlib.util
import json
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

_MODULES = [name for name in dir(tfl) if name not in tfl.__all__]
_PUBLIC = ["", *(f".{name}" for name in _MODULES)]

# A program of a user. A checker must refuse the lines that end in `# wrong` and
# no others. TensorFlow has no types, so its objects are Any.
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


class MyOptimizer(tfl.MixedPrecisionLossScaleOptimizer):
  def _create_slots(self, var_list: Any) -> None:
    super()._create_slots(var_list)
    self._zeros_slot(var_list[0], "mine", self._name)
"""


def all_names():
  """Yields the dotted name of each public name, as the program has it."""
  for name in _PUBLIC:
    module = importlib.import_module(f"{tfl.__name__}{name}")
    for each in module.__all__:
      yield f"tfl{name}.{each}"


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


def run_checker(module, *args, cwd):
  """Returns what a checker prints, or skips the test if there is none."""
  if importlib.util.find_spec(module) is None:
    pytest.skip(f"{module} is not installed")
  done = subprocess.run(
    [sys.executable, "-m", module, *args],
    capture_output=True,
    cwd=cwd,
    # The wrapper of pyright would ask for a newer release.
    env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    text=True,
    timeout=120,
  )
  assert done.returncode == 1, done.stdout + done.stderr
  return done.stdout


def run_mypy(program, python):
  """Returns the lines that mypy refuses: number -> message."""
  printed = run_checker(
    "mypy",
    *("--strict", "--implicit-reexport"),  # So mypy refuses fewer names.
    f"--python-executable={python}",
    f"--cache-dir={program.parent}/cache",
    "--hide-error-context",
    "--no-error-summary",
    program.name,
    cwd=program.parent,
  )
  found = re.findall(r"^program\.py:(\d+): error: (.+)$", printed, re.MULTILINE)
  return {int(line): message for line, message in found}


def run_pyright(program, python):
  """Returns the lines that pyright refuses: number -> message."""
  printed = run_checker(
    "pyright",
    "--outputjson",
    f"--pythonpath={python}",
    program.name,
    cwd=program.parent,
  )
  return {
    each["range"]["start"]["line"] + 1: each["message"]
    for each in json.loads(printed)["generalDiagnostics"]
    if each["severity"] == "error"
  }


@pytest.mark.thorough
@pytest.mark.any_release
@pytest.mark.parametrize("run", [run_mypy, run_pyright])
def test_checkers_refuse_exactly_what_is_wrong(run, python, tmp_path):
  program = tmp_path / "program.py"
  text = _PROGRAM + "".join(f"{name}\n" for name in all_names())
  program.write_text(text)
  refused = run(program, python)
  missed = [
    (line, refused.get(number))
    for number, line in enumerate(text.splitlines(), 1)
    if (number in refused) != line.endswith("# wrong")
  ]
  assert not missed


@pytest.mark.any_release
@pytest.mark.parametrize("name", _PUBLIC)
def test_dir_is_the_api(name):
  module = importlib.import_module(f"tf_compat_lossscale{name}")
  modules = [] if name else _MODULES
  assert dir(module) == sorted([*module.__all__, *modules])
  if name != ".keras":  # Which needs Keras 2.
    for each in module.__all__:
      getattr(module, each)
      assert dir(module) == sorted([*module.__all__, *modules])


if __name__ == "__main__":
  helpers.main()
