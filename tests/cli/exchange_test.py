# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale inspect --like`: states for other systems."""

import json

import helpers
from helpers import GOLDENS
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import policies
from tf_compat_lossscale.cli import main
from tf_compat_lossscale.policies import growth_backoff_rule as rules
from tf_compat_lossscale.policies import state_formats

tf1 = tf.compat.v1
pytestmark = pytest.mark.any_release
_OLD = GOLDENS / "tf-1.15.5"
_DYNAMIC = _OLD / "session_dynamic_adam"
_SEVERAL = _OLD / "program_conds_v2"
_NONE = _OLD / "session_fixed_adam"


def inspect(capsys, *argv):
  """Returns the state that the command prints."""
  assert main.main(["inspect", *map(str, argv)]) == 0
  (line,) = capsys.readouterr().out.splitlines()
  return json.loads(line)


def fail(capsys, *argv):
  """Returns the one line of an error."""
  with pytest.raises(SystemExit) as exit_:
    main.main(["inspect", *map(str, argv)])
  assert exit_.value.code == 2
  printed = capsys.readouterr()
  assert not printed.out
  (line,) = printed.err.splitlines()
  assert line.startswith("tf-lossscale inspect: ")
  return line


def save(folder, scale):
  """Returns a checkpoint of a policy with that scale and some counts."""
  values = {"good_steps": 2, "spent_hysteresis": 1, "skipped_steps": 7}
  with helpers.mode_scope("graph_v1"), tf1.Session() as session:
    loss_scale = policies.GrowthBackoff()
    session.run(tf1.global_variables_initializer())
    loss_scale.current_loss_scale.load(scale, session)
    for name, value in values.items():
      loss_scale._get_weight(name).load(value, session)
    return tf1.train.Saver().save(session, str(folder / "model"))


@pytest.mark.parametrize("name", state_formats.list_names())
def test_policies(name, tmp_path, capsys):
  path = save(tmp_path, 64.0)
  rule = policies.find_rule(name, growth_interval=9, hysteresis=4)
  state = rules.State(64.0, good_steps=2, spent_hysteresis=1)
  expected = state_formats.encode(rule, state, name)
  changes = ("--policy=growth_interval=9", "--policy=hysteresis=4")
  assert inspect(capsys, f"--like={name}", *changes, path) == expected
  # Changes may stand beside the system's name.
  like = f"--like={name},growth_interval=9,hysteresis=4"
  assert inspect(capsys, like, path) == expected


def test_the_defaults_are_those_of_the_system(tmp_path, capsys):
  path = save(tmp_path, 64.0)
  assert inspect(capsys, "--like=torch", path) == {
    "scale": 64.0,
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 2000,
    "_growth_tracker": 2,
  }
  assert inspect(capsys, "--like", "megatron", "--verify", path) == {
    "scale": 64.0,
    "growth_tracker": 2,
    "hysteresis_tracker": 1,
  }


def test_old_checkpoints(capsys):
  for folder in (
    _DYNAMIC,
    _OLD / "contrib_exponential",
    _OLD / "keras_dynamic_adam" / "object",
    GOLDENS / "tf-2.4.4" / "keras_dynamic_adam" / "object",
  ):
    (state,) = checkpoint.describe(folder).loss_scales
    assert inspect(
      capsys, "--like=megatron", "--policy=hysteresis=9", folder
    ) == {
      "scale": state.value,
      "growth_tracker": state.good_steps,
      "hysteresis_tracker": 9 - (state.bad_steps or 0),
    }
  (state,) = checkpoint.describe(_OLD / "contrib_exponential").loss_scales
  assert state.bad_steps is not None


@helpers.NEEDS_KERAS_3
def test_keras_3(tmp_path, capsys):
  import keras as k3

  weight = tf.Variable(1.0)
  opt = k3.optimizers.LossScaleOptimizer(k3.optimizers.SGD(0.1), 64.0)
  for _ in range(3):
    opt.apply([tf.constant(1.0)], [weight])
  path = tf.train.Checkpoint(optimizer=opt).save(str(tmp_path / "model"))
  state = inspect(capsys, "--like=torch", path)
  assert (state["scale"], state["_growth_tracker"]) == (64.0, 3)
  assert inspect(capsys, "--like=keras3", path) == {"2": 3, "3": 64.0}


def test_several_loss_scales(capsys):
  one, two = checkpoint.describe(_SEVERAL).loss_scales
  line = fail(capsys, "--like=torch", _SEVERAL)
  for state in (one, two):
    assert f"--loss-scale={state.names[0]}" in line
    for name in state.names:
      found = inspect(capsys, "--like=torch", f"--loss-scale={name}", _SEVERAL)
      assert found["scale"] == state.value
      assert found["_growth_tracker"] == state.good_steps
  assert one.value != two.value or one.good_steps != two.good_steps
  line = fail(capsys, "--like=torch", "--loss-scale=x", _SEVERAL)
  assert "'x'" in line and one.names[0] in line


def test_checkpoints_without_a_state(tmp_path, capsys):
  assert "no dynamic loss scale" in fail(capsys, "--like=torch", _NONE)
  file = GOLDENS / "tf-2.3.4" / "keras_policy_model"
  line = fail(capsys, "--like=torch", file)
  assert "first value, 512, but no state" in line
  line = fail(capsys, "--like=torch", tmp_path / "nothing")
  assert "nothing" in line
  line = fail(capsys, "--like=torch", save(tmp_path, float("nan")))
  assert "current_loss_scale must be" in line and "nan" in line


@pytest.mark.parametrize(
  ("argv", "what"),
  [
    (["--like=jmp"], "(openseq2seq, opennmt-tf, tf_cnn_benchmarks, thumt)"),
    (["--like=jmp"], "(deepspeed, keras3, megatron, torch), but got 'jmp'"),
    (["--like=default"], "but got 'default'"),
    (["--like="], "but got ''"),
    (["--like=torch", "--policy=interval=4"], "no argument 'interval'"),
    (["--like=torch", "--policy=growth_interval"], "not of the form"),
    (["--like=torch", "--policy=growth_interval=0"], "at least 1"),
    (["--like=torch", "--keys"], "--keys does not go with --like"),
    (["--like=torch", _NONE], "one checkpoint, but got 2"),
    (["--policy=hysteresis=2"], "--policy goes with --like"),
    (["--loss-scale=x"], "--loss-scale goes with --like"),
  ],
)
def test_mistakes(argv, what, capsys):
  assert what in fail(capsys, *argv, _DYNAMIC)


def test_no_tensorflow_is_needed():
  path = str(_DYNAMIC)
  code = """
import sys
sys.modules["tensorflow"] = None
from tf_compat_lossscale.cli import main
sys.exit(main.main(["inspect", "--like=megatron", sys.argv[1]]))
"""
  assert '"hysteresis_tracker": 2' in helpers.run_python("-c", code, path)


if __name__ == "__main__":
  helpers.main()
