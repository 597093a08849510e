# SPDX-License-Identifier: Apache-2.0
"""Tests what mypy and pyright say of a program that uses this package."""

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv

import helpers
import pytest

import tf_compat_lossscale as tfl

pytestmark = pytest.mark.any_release

_PUBLIC = (
  "",
  ".accumulation",
  ".checkpoint",
  ".contrib",
  ".distributed",
  ".environment",
  ".gradients",
  ".graph_rewrite",
  ".keras",
  ".loss_scale",
  ".loss_scale_optimizer",
  ".monitoring",
  ".policies",
)

# A program of a user. A checker must refuse the lines that end in `# wrong` and
# no others. TensorFlow has no types, so its objects are Any.
_PROGRAM = """
from typing import Any

import tf_compat_lossscale as tfl
from tf_compat_lossscale import accumulation
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import contrib
from tf_compat_lossscale import distributed
from tf_compat_lossscale import environment
from tf_compat_lossscale import gradients
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import keras
from tf_compat_lossscale import loss_scale
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies
from tf_compat_lossscale import DynamicLossScal  # wrong
from tf_compat_lossscale.monitoring import LosScaleHook  # wrong
import tf_compat_lossscale.kears  # wrong


def use_names() -> None:
  tfl.DynamicLossScale()
  tfl.keras.LossScaleOptimizer
  tfl.monitoring.LossScaleHook
  tfl.loss_scale.get(8)
  print(tfl.__version__)
  tfl.DynamicLossScal()  # wrong
  tfl.monitorin  # wrong
  tfl.monitoring.Bogus()  # wrong
  accumulation.acumulate  # wrong
  checkpoint.Savr()  # wrong
  contrib.LossScaleManger  # wrong
  distributed.DriftHok  # wrong
  environment.honour_environment()  # wrong
  gradients.unscal  # wrong
  graph_rewrite.enable_mixed_precision  # wrong
  keras.LossScaleOptimiser  # wrong
  loss_scale.DynamicLossScal  # wrong
  loss_scale_optimizer.LossScaleOptimizer  # wrong
  policies.GrowthBackof  # wrong
"""


def all_names():
  """Yields the dotted name of each public name, as the program has it."""
  for name in _PUBLIC:
    module = importlib.import_module(f"{tfl.__name__}{name}")
    for each in module.__all__:
      yield f"tfl{name}.{each}"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
  """Returns a Python that has this package, as pip would install it, alone."""
  folder = tmp_path_factory.mktemp("environment")
  venv.create(folder, symlinks=True)
  site = sysconfig.get_path(
    "purelib", vars={"base": str(folder), "platbase": str(folder)}
  )
  package = helpers.ROOT / "tf_compat_lossscale"
  os.symlink(package, os.path.join(site, package.name))
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


@pytest.mark.parametrize("run", [run_mypy, run_pyright])
def test_checkers_refuse_exactly_what_is_wrong(run, python, tmp_path):
  program = tmp_path / "program.py"
  text = _PROGRAM + "".join(f"{name}\n" for name in all_names())
  program.write_text(text)
  refused = run(program, python)
  for number, line in enumerate(text.splitlines(), 1):
    is_wrong = line.endswith("# wrong")
    assert (number in refused) == is_wrong, (line, refused.get(number))


def test_every_public_module_is_listed():
  modules = {f".{name}" for name in dir(tfl) if name not in tfl.__all__}
  assert modules | {""} == {*_PUBLIC}


@pytest.mark.parametrize("name", _PUBLIC)
def test_dir_is_the_api(name):
  module = importlib.import_module(f"tf_compat_lossscale{name}")
  modules = [each[1:] for each in _PUBLIC if each] if not name else []
  assert dir(module) == sorted([*module.__all__, *modules])
  if name != ".keras":  # Which needs Keras 2.
    for each in module.__all__:
      getattr(module, each)
      assert dir(module) == sorted([*module.__all__, *modules])


if __name__ == "__main__":
  helpers.main()
