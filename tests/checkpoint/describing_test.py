# SPDX-License-Identifier: Apache-2.0
"""Tests `checkpoint.describe` and `tf-lossscale inspect`."""

import json
import os
import subprocess
import sys

import helpers
import numpy as np
import pytest
from saved_graphs import adam_on
from saved_graphs import dynamic
from saved_graphs import save
from saved_graphs import save_tensors
from saved_graphs import variable
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
_INNER = {
  "adam": "Adam",
  "momentum": "Momentum",
  "rmsprop": "RMSProp",
  "sgd": "SGD",
}


of = helpers.list_goldens


def assert_state(description, expected):
  row = expected["rows"][expected["steps_before"] - 1]
  assert description.step == row.get("global_step", row.get("iterations"))
  if expected["kind"] == "fixed":
    assert description.loss_scales == ()
    return
  (state,) = description.loss_scales
  assert state.value == row["loss_scale"]
  assert state.good_steps == row["good_steps"]
  assert state.bad_steps == row.get("bad_steps")


@pytest.mark.parametrize("name", of("session"))
def test_session_by_name(name):
  folder, expected = helpers.GOLDENS / name, helpers.expected_of(name)
  d = checkpoint.describe(folder)
  assert d.kind == "saver" and d.checked
  assert d.path == tf1.train.latest_checkpoint(str(folder))
  assert d.release == f"TensorFlow {name.split('/')[0][3:]}"
  assert d.inner_optimizer == _INNER[expected["inner"]]
  assert_state(d, expected)
  assert sorted(d.keys) == expected["variables"]
  scope = f"{expected['scope']}/" if expected.get("scope") else ""
  if expected["kind"] == "fixed":
    assert d.api is None
  else:
    assert d.api == "compat.v1"
    assert d.loss_scales[0].names == (
      scope + "current_loss_scale",
      scope + "good_steps",
    )
    # TensorFlow 1.14 built v1 conds even with TensorFlow 2 behaviour on.
    v2 = expected.get("v2_behavior") and "tf-1.14" not in name
    assert d.control_flow == ("v2" if v2 else "v1")


def is_old(name):
  """Returns whether a release's Keras had the optimizer as a child."""
  return name.startswith(("tf-1.", "tf-2.0", "tf-2.1", "tf-2.2"))


@pytest.mark.any_release
@pytest.mark.parametrize(
  "name",
  [n for n in of("session", "contrib", "keras") if "policy" not in n],
)
def test_objects_and_contrib(name):
  """Checks what is in an object graph, or in a checkpoint of tf.contrib."""
  folder, expected = helpers.GOLDENS / name, helpers.expected_of(name)
  is_fixed = expected["kind"] == "fixed"
  if "contrib" in name:
    d = checkpoint.describe(folder)
    # A fixed loss scale has no variables, by which names could tell.
    api = None if is_fixed else "contrib"
    assert (d.kind, d.control_flow) == ("saver", "v1")
  else:
    d = checkpoint.describe(folder / expected["object_path"])
    api = "Keras <=2.2" if is_old(name) else "Keras 2.3+"
    api = "compat.v1" if "session" in name else api
    assert d.kind == "object"
  if not (is_fixed and api == "Keras 2.3+"):
    assert d.api == api
  assert d.inner_optimizer == _INNER[expected["inner"]]
  assert_state(d, expected)


@pytest.mark.any_release
@pytest.mark.parametrize(
  "name", [name for name in of("keras") if "policy" in name]
)
def test_keras_models(name):
  folder, expected = helpers.GOLDENS / name, helpers.expected_of(name)
  api = "Keras <=2.2" if is_old(name) else "Keras 2.3+"
  forms = {"object": checkpoint.describe(folder / "weights" / "ckpt")}
  if (folder / "saved_model").exists():
    forms["saved_model"] = checkpoint.describe(folder / "saved_model")
    release = forms["saved_model"].release
    assert release == f"TensorFlow {name.split('/')[0][3:]}"
  for kind, d in forms.items():
    assert (d.kind, d.api, d.inner_optimizer) == (kind, api, "SGD")
    assert d.step == 12
    (state,) = d.loss_scales
    assert (state.value, state.good_steps) == (expected["loss_scale"], 0)


@pytest.mark.parametrize("v2", [False, True])
def test_several_loss_scales(v2, tmp_path):
  """Checks loss scales in scopes, and several in one scope."""

  def build():
    adam_on(["gen", "disc"])
    for value in (2.0, 4.0):
      dynamic(value)
    variable("current_loss_scale_again", [1.0])

  with helpers.control_flow(v2):
    path = save(tmp_path, build, "model-7")
  d = checkpoint.describe(tmp_path)
  assert {s.names: s.value for s in d.loss_scales} == {
    ("gen/current_loss_scale", "gen/good_steps"): 8.0,
    ("disc/current_loss_scale", "disc/good_steps"): 16.0,
    ("current_loss_scale", "good_steps"): 2.0,
    ("current_loss_scale_1", "good_steps_1"): 4.0,
  }
  assert d.control_flow == ("v2" if v2 else "v1")
  assert d.step == 7  # From the file's name: no global step was saved.
  assert d == checkpoint.describe(path)


@pytest.mark.parametrize(
  ("generation", "api"),
  [("legacy", "Keras 2.3+"), ("newer", "Keras 2.11+"), ("3", "Keras 3")],
)
def test_todays_keras(generation, api, tmp_path):
  if generation == "3":
    keras = pytest.importorskip("keras", "3")
    wrap = keras.optimizers.LossScaleOptimizer
  else:
    keras = _keras2.keras
    wrap = keras.mixed_precision.LossScaleOptimizer
  is_legacy = generation == "legacy"
  home = keras.optimizers.legacy if is_legacy else keras.optimizers
  w, optimizer = tf.Variable([1.0]), wrap(home.Adam(0.01))
  for _ in range(2):
    optimizer.apply_gradients([(tf.ones([1]), w)])
  saved = tf.train.Checkpoint(w=w, optimizer=optimizer)
  d = checkpoint.describe(saved.write(str(tmp_path / "ckpt")))
  # Newer optimizers have no slots in the object graph.
  inner = "Adam" if is_legacy else None
  assert (d.kind, d.api, d.inner_optimizer) == ("object", api, inner)
  (state,) = d.loss_scales
  assert state.good_steps == 2 and d.step == 2


@pytest.mark.any_release
def test_the_terminal_gets_nothing_of_tensorflows_log():
  path = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
  environment = {
    k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"
  }
  done = subprocess.run(
    [sys.executable, "-m", "tf_compat_lossscale", "inspect", str(path)],
    capture_output=True,
    cwd=helpers.ROOT,
    env=environment,
    text=True,
    timeout=300,
  )
  assert not done.returncode and "16384" in done.stdout and not done.stderr


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("values", "state", "note"),
  [
    ({"good_steps": np.int64(7)}, None, "good_steps: named like a loss"),
    ({"current_loss_scale": 8.0}, (8.0, None), "good_steps is missing"),
    ({"loss_scale": 8.0}, None, "loss_scale (8) may be a loss scale's"),
    (
      {"current_loss_scale": 8.0, "good_steps": 1, "good_steps_1": 2},
      None,
      "good_steps_1: named like a loss",
    ),
  ],
)
def test_what_looks_like_a_loss_scale(values, state, note, tmp_path):
  """Checks that a description says what is known, and no more."""
  values = {n: np.int64(v) if "good" in n else v for n, v in values.items()}
  d = checkpoint.describe(save_tensors(tmp_path, {"w": 1.0} | values))
  assert d.api is None and note in " ".join(d.notes)
  states = [(s.value, s.good_steps) for s in d.loss_scales]
  assert states == ([state] if state else [])


@pytest.mark.any_release
def test_optimizers_by_their_slots(tmp_path):
  values = {"w": 1.0, "w/adam_m": 1.0, "b": 1.0, "b/lamb_m": 1.0}
  d = checkpoint.describe(save_tensors(tmp_path, values))
  assert d.inner_optimizer == "BERT's AdamWeightDecay, LAMB"


@pytest.mark.any_release
def test_inspect_in_text(capsys):
  path = helpers.GOLDENS / "tf-1.15.5" / "contrib_exponential"
  assert cli.main(["inspect", "--keys", str(path)]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert "written by: contrib, TensorFlow 1.15.5" in lines
  expected = "8192, 3 good steps, 1 bad steps (loss_scale, good_steps, bad_ste"
  assert any(line.startswith(f"loss scale: {expected}") for line in lines)
  assert "  w: float32 [4, 3]" in lines
  assert lines[-9].startswith("today: Restore it")


@pytest.mark.any_release
def test_inspect_in_json(capsys):
  paths = [
    str(helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"),
    "nowhere",
    str(helpers.GOLDENS / "tf-1.15.5" / "contrib_exponential"),
  ]
  assert cli.main(["inspect", "--format=json", "--keys", *paths]) == 2
  out, err = capsys.readouterr()
  assert err.startswith("tf-lossscale inspect: nowhere: no such")
  first, second = json.loads(out)
  assert first["loss_scales"][0]["value"] == 16384.0
  assert first["keys"]["w"] == {"dtype": "float32", "shape": [4, 3]}
  assert second["loss_scales"][0]["bad_steps"] == 1


@pytest.mark.any_release
def test_the_advice_can_be_pasted(tmp_path, monkeypatch):
  """Checks it in another folder than that of `describe`."""
  monkeypatch.chdir(tmp_path)
  w = tf.Variable([1.0], name="w")
  tf.train.Checkpoint(w=w).write("by_object")
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[2.0])
    session.run(v.initializer)
    tf1.train.Saver().save(session, "by_name")
    advice = [checkpoint.describe(p).advice for p in ("by_name", "by_object")]
    monkeypatch.chdir("/")
    exec(advice[0][advice[0].index("import ") :], {"session": session})
  exec(advice[1][advice[1].index("import ") :], {"w": w.assign([0.0])})
  assert w.numpy() == [1.0]


@pytest.mark.any_release
@pytest.mark.parametrize("is_object", [False, True])
def test_a_scale_that_has_run_away(is_object, tmp_path, capsys):
  values = {"current_loss_scale": float("inf"), "good_steps": np.int64(0)}
  path = save_tensors(tmp_path, values)
  if is_object:
    scale = tfl.DynamicLossScale(8.0)
    scale._weights["current_loss_scale"].assign(float("inf"))
    inner = tf1.train.GradientDescentOptimizer(0.1)
    opt = tfl.MixedPrecisionLossScaleOptimizer(inner, scale)
    path = tf.train.Checkpoint(opt=opt).write(str(tmp_path / "object"))
  advice = checkpoint.describe(path).advice
  command = advice.partition("tf-lossscale ")[2].split()
  assert command[1] == path and command[-1] == "--reset"
  assert cli.main(command) == 0  # What it says is what repairs it.
  assert checkpoint.describe(command[2]).loss_scales[0].value == 2.0**15
  capsys.readouterr()
  assert cli.main(["inspect", "--format=json", path]) == 0
  report = json.loads(capsys.readouterr().out)
  assert report[0]["loss_scales"][0]["value"] == "inf"


@pytest.mark.thorough
@pytest.mark.any_release
def test_a_terminal_gets_a_table():
  import pty

  path = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
  written = []

  def read(descriptor):
    data = os.read(descriptor, 1024)
    written.append(data)
    return data

  command = [os.sys.executable, "-m", "tf_compat_lossscale", "inspect"]
  assert pty.spawn([*command, str(path)], read) == 0
  text = b"".join(written).decode()
  assert "16384" in text and "\x1b[1m" in text
