# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints that have some variables of a loss scale, but not all."""

import functools

import numpy as np
import pytest
from role_programs import Program
from saved_graphs import save_tensors
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import policies

tf1 = tf.compat.v1

_WRAPPERS = {
  "compat": lambda opt: tfl.MixedPrecisionLossScaleOptimizer(
    opt, tfl.DynamicLossScale(4.0)
  ),
  "contrib": lambda opt: tfl.contrib.LossScaleOptimizer(
    opt, tfl.contrib.ExponentialUpdateLossScaleManager(4.0, 10)
  ),
  "policy": lambda opt: tfl.MixedPrecisionLossScaleOptimizer(
    opt, policies.GrowthBackoff(4.0)
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
_SCALE = {"loss_scale", "current_loss_scale", "good_steps", "bad_steps"}


@functools.cache
def get_program(kind):
  """Returns a program with name -> variable."""

  def build():
    w = tf1.get_variable("w", [2], use_resource=True)
    opt = _WRAPPERS[kind](tf1.train.AdamOptimizer(0.1))
    opt.minimize(tf.reduce_sum(w * w), var_list=[w])
    return {v.op.name: v for v in tf1.global_variables()}

  return Program(build, False)


def save(folder, kind, left_out):
  """Saves a program without some of its variables; returns the path."""
  values = {
    name: np.full(v.shape, _FILLED.get(name, 1), v.dtype.as_numpy_dtype)
    for name, v in get_program(kind).variables.items()
    if name not in left_out
  }
  return save_tensors(folder, values)


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


cases = pytest.mark.parametrize(
  ("kind", "left_out"),
  [
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
  ],
)


@pytest.mark.parametrize("saver", [False, True])
@cases
def test_equal_names_are_restored(kind, left_out, saver, tmp_path):
  values, report = restore(save(tmp_path, kind, left_out), kind, saver)
  assert set(report.initialized) == set(left_out)
  assert not report.unused
  for name in _FILLED.keys() & values.keys() - set(left_out):
    assert values[name] == _FILLED[name], (name, report)
    assert report.restored[name] == name
  for name, why in report.initialized.items():
    assert why != "the checkpoint has no loss scale for it", name
    assert values[name] == (4 if name.endswith("loss_scale") else 0)


@pytest.mark.parametrize(
  ("kind", "name", "value"),
  [("contrib", "loss_scale", 4), ("policy", "current_loss_scale", 64)],
)
def test_another_api(kind, name, value, tmp_path):
  """Checks that a loss scale without its counter is not bridged."""
  path = save(tmp_path, "compat", ["good_steps"])
  mapping = {name: "current_loss_scale"}
  for wanted, kwargs in ((value, {}), (64, {"mapping": mapping})):
    values, report = restore(path, kind, **kwargs)
    assert (values[name], values["good_steps"]) == (wanted, 0), report


@pytest.mark.any_release
@pytest.mark.parametrize("to", ["saver", "saver-v2", "contrib", "fp32"])
@cases
def test_convert_completes_or_refuses(kind, left_out, to, tmp_path):
  path, new = save(tmp_path, kind, left_out), str(tmp_path / "new")
  is_counted_alone = left_out == ["current_loss_scale"]
  try:
    done = checkpoint.convert(path, new, to)
  except checkpoint.CheckpointError as error:
    assert "names do not tell" in str(error) and "mapping={" in str(error)
    assert not list(tmp_path.glob("new*"))
    assert to in ("contrib", "fp32") or kind == "contrib" or is_counted_alone
    return
  reader = tf.train.load_checkpoint(new)
  names = reader.get_variable_to_shape_map()
  found = _SCALE & {name.split("/")[-1] for name in names}
  wanted = {
    "fp32": set(),
    "contrib": {"loss_scale", "good_steps", "bad_steps"},
  }.get(to, {"current_loss_scale", "good_steps"})
  for name in found:
    value = reader.get_tensor(name)
    assert value == (0 if name in done.added else _FILLED[name])
  if found != wanted:  # It may be no loss scale: all is as it was.
    assert found == _SCALE & get_program(kind).variables.keys() - set(left_out)
    assert kind == "contrib" or is_counted_alone
  elif to != "fp32":
    values, _ = restore(new, "contrib" if to == "contrib" else "compat")
    assert all(np.all(values[n] == reader.get_tensor(n)) for n in wanted)


def test_a_whole_loss_scale_is_not_the_only_candidate(tmp_path):
  """Checks a program that has dropped one of two loss scales."""
  values = {"loss_scale": 8.0, "good_steps": np.int32(5)}
  values |= {"current_loss_scale": 16.0, "good_steps_1": np.int64(3)}
  path = save_tensors(tmp_path, values)
  variables = get_program("contrib").variables
  wanted = {name: v for name, v in variables.items() if name in _FILLED}
  with pytest.raises(checkpoint.CheckpointError, match="names do not tell"):
    restore(path, "contrib", variables=wanted)
