# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints that have some variables of a loss scale, but not all."""

import functools

import helpers
import numpy as np
import pytest
from role_programs import Program
from saved_graphs import save_tensors
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import policies

tf1 = tf.compat.v1

_KINDS = {
  "compat": lambda: (
    tfl.MixedPrecisionLossScaleOptimizer,
    tfl.DynamicLossScale(4.0),
  ),
  "contrib": lambda: (
    tfl.contrib.LossScaleOptimizer,
    tfl.contrib.ExponentialUpdateLossScaleManager(4.0, 10),
  ),
  "policy": lambda: (
    tfl.MixedPrecisionLossScaleOptimizer,
    policies.GrowthBackoff(4.0),
  ),
}
_FILLED = {
  "current_loss_scale": 64.0,
  "loss_scale": 64.0,
  "good_steps": 7,
  "bad_steps": 2,
  "spent_hysteresis": 3,
  "overflows": 5,
  "steps_to_overflow": 11,
  "skipped_steps": 6,
}


def build(kind):
  """Builds a program; returns name -> variable."""
  w = tf1.get_variable("w", [2], use_resource=True)
  opt = tf1.train.AdamOptimizer(0.1)
  if kind != "plain":
    wrap, scale = _KINDS[kind]()
    opt = wrap(opt, scale)
  opt.minimize(tf.reduce_sum(w * w), var_list=[w])
  return {v.op.name: v for v in tf1.global_variables()}


@functools.cache
def get_program(kind):
  return Program(lambda: build(kind), False)


@pytest.fixture(scope="module")
def save(tmp_path_factory):
  """Saves a program without some of its variables; returns the path."""

  @functools.cache
  def save_once(kind, left_out):
    program = get_program(kind)
    kept = {n: v for n, v in program.variables.items() if n not in left_out}
    with program.session(lambda name: _FILLED.get(name, 1)) as session:
      folder = tmp_path_factory.mktemp("saved")
      return tf1.train.Saver(kept).save(session, str(folder / "model"))

  return lambda kind, left_out: save_once(kind, tuple(left_out))


def restore(path, kind, saver=False, **kwargs):
  """Restores into a program; returns name -> value, and the report."""
  program = get_program(kind)
  with program.session() as session:
    if saver:
      restorer = checkpoint.Saver()
      restorer.restore(session, path)
      report = restorer.last_report
    else:
      report = checkpoint.restore(session, path, **kwargs)
    return session.run(program.variables), report


_CASES = [
  ("compat", ["good_steps"]),
  ("compat", ["current_loss_scale"]),
  ("contrib", ["bad_steps"]),
  ("contrib", ["good_steps"]),
  ("contrib", ["loss_scale"]),
  ("contrib", ["good_steps", "bad_steps"]),
  ("contrib", ["loss_scale", "bad_steps"]),
  ("policy", ["good_steps"]),
  ("policy", ["overflows"]),
  ("policy", ["current_loss_scale"]),
]


@pytest.mark.parametrize("saver", [False, True])
@pytest.mark.parametrize(("kind", "left_out"), _CASES)
def test_equal_names_are_restored(kind, left_out, saver, save):
  path = save(kind, left_out)
  saved = {name for name, _ in tf1.train.list_variables(path)}
  values, report = restore(path, kind, saver)
  for name, value in _FILLED.items():
    if name in values and name in saved:
      assert values[name] == value, (name, report)
      assert report.restored[name] == name
  assert set(report.initialized) == set(left_out)
  assert not report.unused
  for name, why in report.initialized.items():
    assert why != "the checkpoint has no loss scale for it", name
    assert values[name] == (4 if name.endswith("loss_scale") else 0)


@pytest.mark.parametrize("kind", ["contrib", "policy"])
def test_another_api(kind, save):
  """Checks that a loss scale without its counter is not bridged."""
  path = save("compat", ["good_steps"])
  values, report = restore(path, kind)
  name = "loss_scale" if kind == "contrib" else "current_loss_scale"
  is_same = kind == "policy"
  assert values[name] == (64 if is_same else 4), report
  assert values["good_steps"] == 0
  mapped, _ = restore(path, kind, mapping={name: "current_loss_scale"})
  assert mapped[name] == 64 and mapped["good_steps"] == 0


@pytest.mark.any_release
@pytest.mark.parametrize("to", ["saver", "saver-v2", "contrib", "fp32"])
@pytest.mark.parametrize(("kind", "left_out"), _CASES)
def test_convert_completes_or_refuses(kind, left_out, to, save, tmp_path):
  path, new = save(kind, left_out), str(tmp_path / "new")
  try:
    done = checkpoint.convert(path, new, to)
  except checkpoint.CheckpointError as error:
    assert "names do not tell" in str(error) and "mapping={" in str(error)
    assert not list(tmp_path.glob("new*"))
    is_counted_alone = left_out == ["current_loss_scale"]
    assert to in ("contrib", "fp32") or kind == "contrib" or is_counted_alone
    return
  reader = tf.train.load_checkpoint(new)
  found = {name.split("/")[-1] for name, _ in tf1.train.list_variables(new)}
  wanted = {
    "fp32": set(),
    "contrib": {"loss_scale", "good_steps", "bad_steps"},
  }.get(to, {"current_loss_scale", "good_steps"})
  scale = {"loss_scale", "current_loss_scale", "good_steps", "bad_steps"}
  for name in found & scale:
    value = reader.get_tensor(name)
    assert value == (0 if name in done.added else _FILLED[name])
  if found & scale != wanted:  # It may be no loss scale: all is as it was.
    saved = {name for name, _ in tf1.train.list_variables(path)}
    assert found & scale == saved & scale
    assert kind == "contrib" or left_out == ["current_loss_scale"]
    return
  if to != "fp32":
    tf1_kind = "contrib" if to == "contrib" else "compat"
    values, _ = restore(new, tf1_kind)
    assert all(np.all(values[n] == reader.get_tensor(n)) for n in wanted)


def test_setting_an_incomplete_loss_scale(tmp_path):
  path = save_tensors(tmp_path, {"current_loss_scale": 8.0})
  done = checkpoint.convert(path, tmp_path / "new", "saver", set_loss_scale=2.0)
  (state,) = checkpoint.describe(tmp_path / "new").loss_scales
  assert (state.value, state.good_steps) == (2, 0)
  assert set(done.changed) == {"current_loss_scale", "good_steps"}


def test_a_whole_loss_scale_is_not_the_only_candidate(tmp_path):
  """Checks a program that has dropped one of two loss scales."""
  values = {"loss_scale": 8.0, "good_steps": np.int32(5)}
  values |= {"current_loss_scale": 16.0, "good_steps_1": np.int64(3)}
  path = save_tensors(tmp_path, values)
  with helpers.control_flow(False), tf.Graph().as_default():
    scale = tfl.contrib.ExponentialUpdateLossScaleManager(4.0, 10)
    w = tf1.get_variable("w", [2], use_resource=True)
    opt = tf1.train.GradientDescentOptimizer(0.1)
    tfl.contrib.LossScaleOptimizer(opt, scale).minimize(w * w, var_list=[w])
    wanted = {v.op.name: v for v in tf1.global_variables() if v is not w}
    error = pytest.raises(checkpoint.CheckpointError, match="names do not tell")
    with tf1.Session() as session, error:
      checkpoint.restore(session, path, variables=wanted)
