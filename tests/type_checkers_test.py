# SPDX-License-Identifier: Apache-2.0
"""Tests what mypy and pyright say of a program that uses this package."""

import ast
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import typing
import venv

import helpers
import numpy as np
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import policies
from tf_compat_lossscale._core.tf import base_classes
from tf_compat_lossscale.checkpoint import converting
from tf_compat_lossscale.checkpoint import exporting
from tf_compat_lossscale.checkpoint.layouts import scalers
from tf_compat_lossscale.monitoring import stuck

# Parameters of TensorFlow's Optimizer that the oldest release does not have.
_NEW_PARAMETERS = (
  "skip_gradients_aggregation",
  "use_own_namescope_for_non_slot_vars",
)
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
import pathlib
from typing import Any

import numpy as np

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


def use_loss_scales(opt: Any, word: str, some: dict[str, Any]) -> None:
  tfl.DynamicLossScale(2**15, increment_period=2000, multiplier=2.0)
  tfl.DynamicLossScale(np.float32(8), np.int64(2000))
  tfl.FixedLossScale(np.int32(8)).get_config()["loss_scale_value"]
  tfl.DynamicLossScale.from_config({}).increment_period.bit_length()
  tfl.DynamicLossScale(increment_perid=2000)  # wrong
  tfl.DynamicLossScale().multiplyer  # wrong
  tfl.DynamicLossScale.from_config({}).increment_perid  # wrong
  tfl.FixedLossScale(8).good_steps  # wrong
  tfl.DynamicLossScale("dynamic")  # wrong
  tfl.FixedLossScale()  # wrong
  tfl.FixedLossScale("8")  # wrong

  scale: tfl.LossScale = tfl.get("dynamic")
  same: tfl.LossScale = tfl.get(scale)
  tfl.get(np.float32(8)).update([])
  tfl.get(some).update([])
  nothing: None = tfl.get(None)
  tfl.get("dynamic").good_steps.assign(0)
  tfl.get(policies.GrowthBackoff()).skipped_steps
  tfl.get(8).good_steps  # wrong
  tfl.get("dynamc")  # wrong
  tfl.get(word)  # wrong
  tfl.get(None).update([])  # wrong
  tfl.get([8])  # wrong
  number: int = tfl.get(8)  # wrong

  own = tfl.MixedPrecisionLossScaleOptimizer(opt, "dynamic")
  tfl.MixedPrecisionLossScaleOptimizer(opt, loss_scale=8)
  tfl.MixedPrecisionLossScaleOptimizer(opt, same)
  own.minimize(opt.loss, global_step=opt.step)
  own.loss_scale.good_steps
  own.apply_gradients([(g * 2, v) for g, v in own.compute_gradients(opt.loss)])
  tfl.MixedPrecisionLossScaleOptimizer(opt, "dynamc")  # wrong
  tfl.MixedPrecisionLossScaleOptimizer(opt, None)  # wrong
  tfl.MixedPrecisionLossScaleOptimizer(opt)  # wrong
  own.minimize(opt.loss, step=opt.step)  # wrong
  own.minimise(opt.loss)  # wrong
  own.los_scale()  # wrong
  own.get_slot("m")  # wrong
  tfl.get(own)  # wrong
  own.apply_gradients([], step=opt.step)  # wrong

  wrapped = tfl.enable_mixed_precision_graph_rewrite(opt, "dynamic")
  wrapped.minimize(opt.loss)
  tfl.enable_mixed_precision_graph_rewrite(opt, "fixed")  # wrong
  tfl.disable_mixed_precision_graph_rewrite(opt)  # wrong
  graph_rewrite.register_loss_scale_wrapper(int, "wrapper")  # wrong

  several = tfl.accumulate(own, steps=8, drop="micro_batch")
  several.steps.bit_length()
  tfl.accumulate(own, 8, drop="windw")  # wrong
  tfl.accumulate(own, stps=8)  # wrong
  tfl.accumulate(tfl.DynamicLossScale(), 8)  # wrong

  tfl.install(keras_optimizers="legacy").rows
  tfl.install("old")  # wrong
  tfl.uninstall(1)  # wrong
  tfl.use_keras_2(True)  # wrong
  tfl.honor_environment(quiet=True)
  tfl.honor_environment(loud=True)  # wrong
  tfl.ignore_environment(True)  # wrong
  gradients.all_finite([]), gradients.unscale([], opt)
  gradients.scale(lambda: opt, 8.0)()
  gradients.all_finite()  # wrong


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

  def apply_gradients(
    self, grads_and_vars: Any, global_step: Any = None, name: Any = None
  ) -> Any:
    self.seen = True
    return super().apply_gradients(grads_and_vars, global_step, name)


class MyManager:
  def get_loss_scale(self) -> float:
    return 8.0

  def update_loss_scale(self, finite: Any) -> None:
    pass


def use_contrib(opt: Any) -> None:
  tfl.MixedPrecisionLossScaleOptimizer(opt, Mine())
  tfl.accumulate(MyOptimizer(opt, 8), 2).minimize(opt.loss)
  contrib.FixedLossScaleManager(8)
  manager = contrib.ExponentialUpdateLossScaleManager(2**15, 2000)
  contrib.LossScaleOptimizer(opt, manager, sparse="keep").minimize(opt.loss)
  contrib.LossScaleOptimizer(opt, MyManager())
  manager.to_loss_scale().increment_period
  contrib.LossScaleOptimizer(opt, manager, sparse="sparse")  # wrong
  contrib.LossScaleOptimizer(opt, tfl.DynamicLossScale())  # wrong
  contrib.LossScaleOptimizer(opt, "dynamic")  # wrong
  contrib.ExponentialUpdateLossScaleManager(2**15)  # wrong
  contrib.FixedLossScaleManager("8")  # wrong


def use_policies(config: dict[str, Any]) -> None:
  policies.GrowthBackoff(refill="finite", at_minimum="raise").get_config()
  policies.GrowthBackoff(refill=["growth", "backoff"], overflow_reset=())
  policies.GrowthBackoff(**config)
  policies.GrowthBackoff(refill="overflow")  # wrong
  policies.GrowthBackoff(refill=["growht"])  # wrong
  policies.GrowthBackoff(at_minimum="fail")  # wrong
  policies.GrowthBackoff(overflow_reset="finite")  # wrong
  policies.GrowthBackoff(growth_intervl=500)  # wrong
  policies.GrowthBackoff(growth_interval="500")  # wrong


def use_checkpoints(session: Any, path: pathlib.Path) -> None:
  saver = checkpoint.Saver(max_to_keep=3, sharded=True)
  saver.save(session, "model.ckpt", global_step=session.step)
  saver.restore(session, path)
  saver.like = "thumt"
  checkpoint.Saver({"v": session}, saver_def=session.saver_def)
  checkpoint.Saver([session])
  checkpoint.Saver(max_to_kep=3)  # wrong
  checkpoint.Saver(sharded="yes")  # wrong
  checkpoint.Saver(7)  # wrong
  saver.save(session)  # wrong
  saver.safe(session, "model.ckpt")  # wrong
  saver.restore(session)  # wrong
  saver.like = "hvd"  # wrong

  checkpoint.Scaffold(saver=saver, init_fn=lambda scaffold, session: None)
  checkpoint.Scaffold().finalize().saver
  checkpoint.Scaffold(savr=saver)  # wrong
  checkpoint.Scaffold().finalise()  # wrong
  checkpoint.MonitoredTrainingSession(checkpoint_dir="run", hooks=[session])
  checkpoint.MonitoredTrainingSession("", save_checkpoint_secs=None)
  checkpoint.MonitoredTrainingSession(chekpoint_dir="run")  # wrong
  checkpoint.MonitoredTrainingSession(hooks=3)  # wrong
  checkpoint.import_meta_graph("model.meta", clear_devices=True)
  checkpoint.import_meta_graph()  # wrong

  checkpoint.describe(path, like="openseq2seq").loss_scales[0].value
  checkpoint.describe(path, lik="openseq2seq")  # wrong
  checkpoint.describe(path, like="openseq")  # wrong
  checkpoint.describe(path).loss_scale  # wrong
  checkpoint.restore(session, path, what="weights").restored
  checkpoint.restore(None, path, missing="initialize", variables=[session])
  checkpoint.restore(session, path, what="weight")  # wrong
  checkpoint.restore(session, path, missing="initialise")  # wrong
  checkpoint.restore(path)  # wrong
  checkpoint.convert(path, "new", to="safetensors", dry_run=True).written
  checkpoint.convert(path, "new", "keras2", reset=True)
  checkpoint.convert(path, "new", to="keras3")  # wrong
  checkpoint.convert(path, "new")  # wrong
  checkpoint.convert(path, "new", to="fp32", like="amp")  # wrong
  checkpoint.Report("path").bridge  # wrong
  checkpoint.Conversion(path)  # wrong


def use_monitoring(opt: Any, path: pathlib.Path) -> None:
  monitoring.LossScaleHook(opt, output_dir=path, on_stuck="stop")
  monitoring.Monitor(opt, path, patience=100).step()
  monitoring.LossScaleCallback("logs", on_stuck="raise")
  monitoring.judge(monitoring.read_run(path)).sentence.upper()
  monitoring.LossScaleHook()  # wrong
  monitoring.LossScaleHook(opt, on_stuck="halt")  # wrong
  monitoring.LossScaleHook(opt).stop_request  # wrong
  monitoring.judge(monitoring.LossScaleHook(opt))  # wrong
  monitoring.LossScaleHook(opt, every_steps=10)  # wrong
  monitoring.Monitor(opt, on_stuck="ignore")  # wrong
  monitoring.Monitor(opt).stp()  # wrong
  monitoring.LossScaleCallback(opt, on_stuck="abort")  # wrong
  if monitoring.judge(monitoring.read_run(path)).kind == "nan_gradients":
    pass
  monitoring.judge(path)  # wrong
  monitoring.read_run()  # wrong
  monitoring.judge(monitoring.read_run(path)).sentense  # wrong


def use_workers(opt: Any, path: pathlib.Path) -> None:
  distributed.agree(tfl.DynamicLossScale()).good_steps
  distributed.agree(opt, lambda tensor: tensor)
  distributed.DriftHook(opt, every_n_steps=10, all_gather="horovod")
  distributed.check_drift(opt, all_gather=lambda row: row)
  with distributed.open_session(opt, is_chief=True, limit=30) as session:
    session.run(opt)
  distributed.agree(opt, "mpi")  # wrong
  distributed.agree()  # wrong
  distributed.agree(tfl.DynamicLossScale()).bad_steps  # wrong
  distributed.DriftHook(opt, all_gather="mpi")  # wrong
  distributed.DriftHook(opt, steps=10)  # wrong
  distributed.DriftHook(opt).begn()  # wrong
  distributed.check_drift(opt, "nccl")  # wrong
  distributed.open_session(opt)  # wrong


def use_keras(opt: Any, policy: Any) -> None:
  keras.LossScaleOptimizer(opt, "dynamic").apply_gradients([])
  keras.LossScaleOptimizer(optimizer=opt, loss_scale=tfl.FixedLossScale(8))
  keras.LossScaleOptimizer(opt, 128)
  keras.LossScaleOptimizer.from_config({}).last_step_applied
  keras.Policy("mixed_float16", loss_scale="auto").loss_scale
  keras.Policy("float32", None)
  keras.set_policy("mixed_bfloat16")
  keras.set_policy(keras.Policy("float16_with_float32_vars"))
  keras.set_policy(policy)
  keras.load_model("model.h5", compile=False)
  keras.to_keras3({"loss_scale": 8}, opt, variables=[])
  keras.global_policy(), keras.get_layer_policy(opt)
  keras.LossScaleOptimizer(opt)  # wrong
  keras.LossScaleOptimizer(opt, "dynamc")  # wrong
  keras.LossScaleOptimizer(opt, None)  # wrong
  keras.LossScaleOptimizer(opt, policies.GrowthBackoff())  # wrong
  keras.LossScaleOptimizer(opt, "dynamic", 3)  # wrong
  keras.Policy("mixed_float61")  # wrong
  keras.Policy("mixed_float16", loss_scale="fixed")  # wrong
  keras.Policy()  # wrong
  keras.set_policy("mixed")  # wrong
  keras.set_policy(tfl.DynamicLossScale())  # wrong
  keras.load_model()  # wrong
  keras.to_keras3(opt, varables=[])  # wrong
  keras.global_policy(opt)  # wrong
  keras.get_layer_policy()  # wrong
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
def test_every_public_module_is_listed():
  modules = {f".{name}" for name in dir(tfl) if name not in tfl.__all__}
  assert modules | {""} == {*_PUBLIC}


@pytest.mark.any_release
@pytest.mark.parametrize("name", _PUBLIC)
def test_dir_is_the_api(name):
  module = importlib.import_module(f"tf_compat_lossscale{name}")
  modules = [each[1:] for each in _PUBLIC if each] if not name else []
  assert dir(module) == sorted([*module.__all__, *modules])
  if name != ".keras":  # Which needs Keras 2.
    for each in module.__all__:
      getattr(module, each)
      assert dir(module) == sorted([*module.__all__, *modules])


@pytest.mark.any_release
def test_words_are_those_that_are_taken():
  assert {*typing.get_args(scalers.Like)} == {*scalers.LIKE}
  assert {*exporting.LAYOUTS} < {*typing.get_args(converting.Layout)}
  for word in typing.get_args(stuck.Reaction):
    assert stuck.check_reaction(word) == word
  for field, words in (
    ("refill", policies.Event),
    ("overflow_reset", policies.Change),
    ("at_minimum", policies.AtMinimum),
  ):
    for word in typing.get_args(words):
      policies.GrowthBackoff(**{field: word})


def declared_classes():
  """Yields the classes that `base_classes` declares, but for `Trackable`."""
  tree = ast.parse(pathlib.Path(base_classes.__file__).read_text("utf-8"))
  for node in ast.walk(tree):
    if isinstance(node, ast.ClassDef) and node.name != "Trackable":
      yield node


@pytest.mark.parametrize(
  "declared", [*declared_classes()], ids=lambda c: c.name
)
def test_declared_classes_are_as_tensorflows(declared):
  cls = getattr(base_classes, declared.name)
  names = {
    node.name if isinstance(node, ast.FunctionDef) else node.target.id: node
    for node in declared.body
  }
  inherited = dir(base_classes.Trackable)
  public = {name for name in dir(cls) if name[0] != "_"} - {*inherited}
  assert public == {name for name in names if name[0] != "_"} - {"saver_def"}
  for name, method in names.items():
    if not isinstance(method, ast.FunctionDef) or method.decorator_list:
      continue
    parameters = inspect.signature(getattr(cls, name)).parameters
    given = [each.arg for each in method.args.args]
    assert given == [x for x in parameters if x not in _NEW_PARAMETERS]
    defaults = method.args.defaults
    for name, default in zip(given[-len(defaults) :], defaults):
      assert ast.literal_eval(default) == parameters[name].default, name


def test_sessions_have_the_parameters_of_tensorflows():
  ours, theirs = (
    {
      name: parameter.default
      for name, parameter in inspect.signature(function).parameters.items()
    }
    for function in (
      checkpoint.MonitoredTrainingSession,
      helpers.tf1.train.MonitoredTrainingSession,
    )
  )
  assert list(ours.items()) == list(theirs.items())


if __name__ == "__main__":
  helpers.main()
