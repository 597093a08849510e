# SPDX-License-Identifier: Apache-2.0
"""Tests that other systems' loss scalers are recognized, and no others."""

import json
import os
import pathlib

import helpers
import pytest
import scaler_programs
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import policies
from tf_compat_lossscale.checkpoint.files import meta_graph
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import scaler_bridges
from tf_compat_lossscale.cli import main

tf1 = tf.compat.v1
_SEQ2SEQ = scaler_programs.openseq2seq
_THUMT = scaler_programs.thumt
_CNN = scaler_programs.tf_cnn_benchmarks
_STEPS = "x..x.."


def save(folder, build, steps=_STEPS, meta=True, **options):
  return scaler_programs.save(folder, build, steps, meta, **options)


def describe(*args, **options):
  d = checkpoint.describe(save(*args, **options))
  return d, d.loss_scales[0] if d.loss_scales else None


@pytest.mark.parametrize(
  ("options", "scope", "first"),
  [
    ({}, "Loss_Optimization/", 0),
    ({"scope": None}, "", 0),
    ({"scope": "optim"}, "optim/", 0),
    ({"scope": "a/b", "before": 2}, "a/b/", 2),
    ({"clipping": True}, "Loss_Optimization/", 0),
    ({"use_resource": True, "before": 1}, "Loss_Optimization/", 1),
  ],
)
def test_backoff_in_any_scope_with_any_numbers(options, scope, first, tmp_path):
  d, state = describe(tmp_path, _SEQ2SEQ, upper=2.0**12, **options)
  numbered = [
    f"{scope}Variable" + (f"_{n}" if n else "") for n in range(first, first + 3)
  ]
  assert set(state.names) == set(numbered) and state.names[0] == numbered[2]
  assert state.counters[numbered[0]] == 6 and state.counters[numbered[1]] == 4
  assert state.value == 1024 and state.good_steps == 2
  assert state.rule == {"increment_period": 3, "multiplier": 2}
  assert d.api == ("OpenNMT-tf 1.x" if scope == "optim/" else "OpenSeq2Seq")
  assert d.masters == {"layer/w": f"{scope}FP32-master-copy/layer/w"}
  assert any("4096 or below" in note for note in state.notes)
  assert any("one too many" in note for note in state.notes)


def test_backoff_with_other_constants(tmp_path):
  _, state = describe(
    tmp_path, _SEQ2SEQ, window=7, factor=3.0, lower=4.0, upper=2.0**20
  )
  assert state.rule == {"increment_period": 7, "multiplier": 3}
  assert "min_loss_scale=4" in state.policy
  assert "max_loss_scale=1048576" in state.policy
  assert any("4 or above" in note for note in state.notes)
  assert any("no power of 2" in note for note in state.notes)


@pytest.mark.parametrize("before", [0, 3])
def test_log_max_gives_its_present_scale_alone(before, tmp_path):
  d, state = describe(tmp_path, _SEQ2SEQ, kind="LogMax", before=before)
  assert d.api == "OpenSeq2Seq" and state.system == "OpenSeq2Seq (LogMax)"
  assert state.names[0].endswith(f"Variable_{before + 1}")
  assert state.good_steps is None and not state.rule and not state.policy
  assert any("no loss scale has this rule" in note for note in state.notes)
  with tf.Graph().as_default():
    session, scale = build_today(["layer/w"])
    report = checkpoint.restore(session, d.path)
    assert list(report.initialized) == ["good_steps"]
    assert session.run(scale()) == state.value


def test_a_fixed_scale_of_openseq2seq_has_masters_alone(tmp_path):
  d, state = describe(tmp_path, _SEQ2SEQ, kind="fixed", scope="optim")
  assert state is None and d.api == "OpenNMT-tf 1.x" and len(d.masters) == 1
  new = checkpoint.convert(d.path, tmp_path / "new", "saver")
  assert set(checkpoint.describe(new.path).keys) == {
    "beta1_power",
    "beta2_power",
    "global_step",
    "layer/w",
    "layer/w/Adam",
    "layer/w/Adam_1",
  }


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("meta", [False, True])
def test_thumt(meta, accumulates, tmp_path):
  d, state = describe(tmp_path, _THUMT, meta=meta, accumulates=accumulates)
  count = "iter_1" if accumulates else "iter"
  assert d.api == "THUMT" and state.system == "THUMT"
  assert state.names[:2] == ("scale", count)
  assert state.counters == {
    count: 6,
    "rescale_iter": 1,
    "overflow_iter": 4,
    "overflow": 1,
  }
  assert state.value == 2048 and state.good_steps == 2
  assert bool(state.rule) == bool(state.policy) == meta
  assert any(("0.6" if meta else "settings") in note for note in state.notes)
  assert any("zeros" in note for note in state.notes)


def test_a_threshold_of_thumt_is_its_minimum(tmp_path):
  _, state = describe(tmp_path, _THUMT, threshold=8.0, window=5, tolerance=0.05)
  assert "min_loss_scale=8" in state.policy
  assert "growth_interval=5" in state.policy
  assert any("8 or above" in note for note in state.notes)
  assert any("lost a fall" in note for note in state.notes)


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.5, 0.6])
def test_the_tolerance_of_thumt_is_exclusive(tolerance, tmp_path):
  """THUMT's scale falls above the tolerance, a policy's from it on."""
  from tf_compat_lossscale.policies import GrowthBackoffRule

  _, state = describe(tmp_path, _THUMT, tolerance=tolerance)
  arguments = eval(state.policy.replace("policies.GrowthBackoff", "dict"))
  rule = GrowthBackoffRule(initial_loss_scale=2.0**12, **arguments)
  steps = [c == "." for c in ".x..x.x..x.xx....x.x...x"]
  expected = []
  scale, changed, count, last = 2.0**12, 0, 0, -1
  for i, finite in enumerate(steps, 1):
    if not finite:
      count, last = count + 1, i
      if count / (i - changed) > tolerance + 1e-9:
        scale, changed, count = scale / 2, i, 0
    elif (i - last) % 3 == 0:
      scale, changed = scale * 2, i
    expected.append(scale)
  # THUMT's first window is a step shorter.
  state = rule.start()._replace(good_steps=1, steps_to_overflow=-1)
  found = []
  for finite in steps:
    state = rule.step(state, finite)
    found.append(state.current_loss_scale)
  assert found == expected


@pytest.mark.parametrize("prefix", ["v", "v0"])
@pytest.mark.parametrize("meta", [False, True])
def test_tf_cnn_benchmarks(meta, prefix, tmp_path):
  d, state = describe(tmp_path, _CNN, meta=meta, every=5, prefix=prefix)
  assert d.api == "tf_cnn_benchmarks" and state.good_steps == 2
  assert state.names == ("loss_scale", "loss_scale_normal_steps")
  assert state.rule == (
    {"increment_period": 6, "multiplier": 2} if meta else {}
  )
  assert any("counts steps with overflow" in note for note in state.notes)


@pytest.mark.parametrize("meta", [False, True])
def test_a_fixed_scale_of_tf_cnn_benchmarks_is_not_taken_over(meta, tmp_path):
  d, state = describe(tmp_path, _CNN, "...", meta=meta, automatic=False)
  assert state is None and d.api is None
  (note,) = d.notes
  assert note.startswith("loss_scale (128)")
  assert ("nothing changes it" in note) == meta
  with tf.Graph().as_default():
    session, scale = build_today(["v/cg/affine0/weights"])
    report = checkpoint.restore(session, d.path)
    assert set(report.initialized) == {"current_loss_scale", "good_steps"}
    assert session.run(scale()) == 2.0**15
  if meta:
    new = checkpoint.convert(d.path, tmp_path / "new", "saver")
    assert "loss_scale" in checkpoint.describe(new.path).keys


def test_a_scale_below_the_minimum_is_named(tmp_path):
  d, state = describe(tmp_path, _CNN, "x" * 9, optimizer="momentum")
  assert state.value == 0.25
  assert any("0.25 is below" in note for note in state.notes)
  with tf.Graph().as_default():
    session, scale = build_today(["v/cg/affine0/weights"])
    report = checkpoint.restore(session, d.path, missing="initialize")
    assert session.run(scale()) == 0.25
    assert any("0.25 is below" in note for note in report.notes)


def test_each_replica_may_change_the_scale(tmp_path):
  _, state = describe(tmp_path, _CNN, optimizer="momentum", replicas=2)
  assert state.rule == {"increment_period": 3, "multiplier": 2}
  assert any("at 2 places" in note for note in state.notes)


def test_sums_of_an_accumulation_are_named(tmp_path):
  path = save(tmp_path, _THUMT, accumulates=True)
  new = checkpoint.convert(path, tmp_path / "new", "saver")
  assert any("layer/w/MultiStepOptimizer" in note for note in new.notes)


def build_today(weights, scope=None, loss_scale=None):
  """Trains weights with a DynamicLossScale; returns its session."""
  step = tf1.train.get_or_create_global_step()
  found = [tf1.get_variable(name, [2]) for name in weights]
  scale = loss_scale or tfl.DynamicLossScale(increment_period=3)
  with tf1.variable_scope(scope or tf1.get_variable_scope()):
    optimizer = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), scale
    )
    loss = tf.add_n([tf.reduce_sum(w) for w in found])
    optimizer.minimize(loss, global_step=step)
  session = tf1.Session()
  session.run(tf1.global_variables_initializer())
  return session, scale


_PROGRAMS = [
  (_SEQ2SEQ, {}),
  (_SEQ2SEQ, {"scope": None, "clipping": True}),
  (_SEQ2SEQ, {"scope": "optim", "before": 2}),
  (_THUMT, {}),
  (_THUMT, {"accumulates": True}),
  (_CNN, {}),
]


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("scope", [None, "s"])
@pytest.mark.parametrize(("build", "options"), _PROGRAMS)
def test_todays_programs_restore_all(build, options, scope, v2, tmp_path):
  d, state = describe(tmp_path, build, **options)
  name = "v/cg/affine0/weights" if build is _CNN else "layer/w"
  stored = d.masters.get(name, name)
  value = tf.train.load_variable(d.path, stored)
  power = next(k for k in d.keys if k.endswith("beta1_power"))
  with helpers.control_flow(v2), tf.Graph().as_default():
    session, scale = build_today([name], scope=scope)
    report = checkpoint.restore(session, d.path)
    assert not report.initialized and not report.kept
    variables = {v.op.name: v for v in tf1.global_variables()}
    restored = session.run(variables)
    assert (restored[name] == value).all()
    assert session.run(scale()) == state.value
    weights = session.run(scale._weights)
    assert weights["good_steps"] == state.good_steps
    (mine,) = (n for n in restored if n.endswith("beta1_power"))
    assert restored[mine] == tf.train.load_variable(d.path, power)
    (slot,) = (n for n in restored if n.endswith("/Adam"))
    theirs = next(k for k in d.keys if k.endswith("/Adam"))
    assert (restored[slot] == tf.train.load_variable(d.path, theirs)).all()


@pytest.mark.parametrize("to", ["saver", "saver-v2"])
@pytest.mark.parametrize(("build", "options"), _PROGRAMS)
def test_a_plain_saver_reads_converted_programs(build, options, to, tmp_path):
  d, state = describe(tmp_path, build, **options)
  name = "v/cg/affine0/weights" if build is _CNN else "layer/w"
  new = checkpoint.convert(d.path, tmp_path / "new", to)
  with helpers.control_flow(to == "saver-v2"), tf.Graph().as_default():
    session, scale = build_today([name])
    tf1.train.Saver().restore(session, new.path)
    assert session.run(scale()) == state.value
  (converted,) = checkpoint.describe(new.path).loss_scales
  assert converted.good_steps == state.good_steps


# A process numbers slots of equal weights, so each weight's name comes once.
@pytest.mark.parametrize(
  ("build", "options"), [(_SEQ2SEQ, {"scope": "optim"}), (_CNN, {})]
)
def test_objects_restore_them_eagerly(build, options, tmp_path):
  d, state = describe(tmp_path, build, **options)
  name = "v/cg/affine0/weights" if build is _CNN else "layer/w"

  def make():
    w = tf.Variable([1.0, 2.0], name=name)
    scale = tfl.DynamicLossScale(increment_period=3)
    optimizer = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), scale
    )
    optimizer.minimize(lambda: tf.reduce_sum(w), var_list=[w])
    return w, scale, optimizer

  w, scale, optimizer = make()
  objects = {"w": w, "optimizer": optimizer}
  report = checkpoint.restore(None, d.path, objects)
  stored = d.masters.get(name, name)
  assert (w.numpy() == tf.train.load_variable(d.path, stored)).all()
  assert float(scale()) == state.value and report.notes
  assert int(scale._weights["good_steps"]) == state.good_steps
  template = tf.train.Checkpoint(**objects).save(str(tmp_path / "template"))
  new = checkpoint.convert(
    d.path, tmp_path / "new", "object", template=template
  )
  other, scale, optimizer = make()
  tf.train.Checkpoint(w=other, optimizer=optimizer).read(new.path)
  assert (w.numpy() == other.numpy()).all() and float(scale()) == state.value


@pytest.mark.parametrize(("build", "options"), _PROGRAMS)
def test_the_same_program_restores_exactly(build, options, tmp_path):
  path = save(tmp_path, build, **options)
  with helpers.control_flow(False), tf.Graph().as_default():
    build(**options)
    saver = checkpoint.Saver()
    with tf1.Session() as session:
      saver.restore(session, path)
    assert saver.last_report is None


@pytest.mark.parametrize(
  ("steps", "overflows", "steps_to_overflow"),
  [("x..x..", 1, 3), (".", 0, -1), ("....x", 1, 3)],
)
def test_counts_of_thumts_tolerance(
  steps, overflows, steps_to_overflow, tmp_path
):
  path = save(tmp_path, _THUMT, steps)
  with tf.Graph().as_default():
    session, policy = build_today(
      ["layer/w"], loss_scale=policies.GrowthBackoff(overflow_tolerance=0.5)
    )
    report = checkpoint.restore(session, path)
    found = session.run(policy._weights)
  assert found["overflows"] == overflows
  assert found["steps_to_overflow"] == steps_to_overflow
  assert set(report.initialized) == {"spent_hysteresis", "skipped_steps"}


def test_evidence_has_the_names_that_the_bridge_gave(tmp_path):
  bundle = Bundle(save(tmp_path, _SEQ2SEQ))
  bridge = scaler_bridges.bridge_foreign(
    evidence.find_foreign(bundle), by_object.list_by_name(bundle)
  )
  found = evidence.find_evidence(bundle, renamed=bridge.renamed)
  asked = ["current_loss_scale", "good_steps", "cond_1/beta1_power"]
  usage = found.find_usage(asked)
  assert "layer/w" in usage.serves["current_loss_scale"]
  assert "layer/w" in usage.serves["cond_1/beta1_power"]
  assert usage.serves["good_steps"] == {"current_loss_scale"}
  (scale,) = usage.scales
  assert scale.names == ("current_loss_scale", "good_steps")
  assert "layer/w" in usage.trained & usage.trainable


def test_masters_show_the_scope_if_the_user_says_the_system(tmp_path):
  def build():
    with tf1.variable_scope("another"):
      for value, dtype in ((0, tf.int64), (1, tf.int64), (8.0, tf.float32)):
        tf1.Variable(value, trainable=False, dtype=dtype)
    return _SEQ2SEQ()

  path = save(tmp_path, build, meta=False)
  (state,) = checkpoint.describe(path, like="openseq2seq").loss_scales
  assert state.names[0] == "Loss_Optimization/Variable_2"


def test_a_mapping_decides_without_a_proof(tmp_path):
  path = save(tmp_path, _SEQ2SEQ, meta=False)
  scale = "Loss_Optimization/Variable_2"
  mapping = {"current_loss_scale": scale}
  new = checkpoint.convert(path, tmp_path / "new", "saver", mapping=mapping)
  (state,) = checkpoint.describe(new.path).loss_scales
  assert state.value == 1024
  with tf.Graph().as_default():
    session, today = build_today(["layer/w"])
    report = checkpoint.restore(session, path, mapping=mapping)
    assert session.run(today()) == 1024
    assert report.bridged["layer/w"].endswith("FP32-master-copy/layer/w")


def test_a_mapping_may_name_the_systems_variables(tmp_path):
  path = save(tmp_path, _THUMT)
  with tf.Graph().as_default():
    session, today = build_today(["layer/w"])
    with session.graph.as_default():
      count = tf1.get_variable("n", [], tf.int32, trainable=False)
    mapping = {"current_loss_scale": "scale", "n": "iter"}
    report = checkpoint.restore(session, path, mapping=mapping)
    assert session.run(today()) == 2048 and session.run(count) == 6
    assert not report.initialized


@pytest.mark.parametrize("build", [_THUMT, _CNN])
def test_tf_contribs_loss_scale_takes_them_over(build, tmp_path):
  d, state = describe(tmp_path, build)
  name = "v/cg/affine0/weights" if build is _CNN else "layer/w"
  with tf.Graph().as_default():
    step = tf1.train.get_or_create_global_step()
    w = tf1.get_variable(name, [2])
    manager = tfl.contrib.ExponentialUpdateLossScaleManager(8.0, 3)
    optimizer = tfl.contrib.LossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), manager
    )
    optimizer.minimize(tf.reduce_sum(w), global_step=step)
    with tf1.Session() as session:
      report = checkpoint.restore(session, d.path)
      assert session.run(manager.get_loss_scale()) == state.value
      names = ("good_steps", "bad_steps")
      variables = {v.op.name: v for v in tf1.global_variables()}
      found = session.run([variables[name] for name in names])
      assert found == [state.good_steps, 0] and report.notes


def test_the_first_format_has_them_too(tmp_path):
  path = str(tmp_path / "model")
  with helpers.control_flow(False), tf.Graph().as_default():
    built = _SEQ2SEQ()
    saver = tf1.train.Saver(write_version=tf1.train.SaverDef.V1)
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      for step in "x..":
        session.run(built.op, {built.overflow: step == "x"})
      saver.save(session, path)
  (state,) = checkpoint.describe(path).loss_scales
  assert state.value == 2048 and state.good_steps == 2 and state.policy
  with tf.Graph().as_default():
    session, scale = build_today(["layer/w"])
    checkpoint.restore(session, path)
    assert session.run(scale()) == 2048


def test_float16_weights_stay_in_a_program_of_float16(tmp_path):
  path = save(tmp_path, _SEQ2SEQ)
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("layer/w", [2], tf.float16)
    report = checkpoint.restore(session, path)
    assert report.restored == {"layer/w": "layer/w"} and not report.notes
    assert (session.run(w) == tf.train.load_variable(path, "layer/w")).all()


def test_the_first_replica_is_brought_to_a_program_without_replicas(tmp_path):
  path = save(tmp_path, _CNN, prefix="v0")
  with tf.Graph().as_default():
    session, _ = build_today(["v/cg/affine0/weights"])
    report = checkpoint.restore(session, path)
    assert report.bridged["v/cg/affine0/weights"] == "v0/cg/affine0/weights"
    assert not report.initialized


def test_replicas_that_have_a_power_each(tmp_path):
  path = str(tmp_path / "model")
  scope = "append_apply_gradient_ops/cond_if_grad_has_inf_nan/"
  with tf.Graph().as_default(), tf1.Session() as session:
    scaler_programs._variable(8.0, tf.float32, "loss_scale")
    scaler_programs._variable(1, tf.int32, "loss_scale_normal_steps")
    for power in ("beta1_power", "beta2_power"):
      for i in range(2):
        name = f"{scope}{power}" + "_1" * i
        tf1.get_variable(name, initializer=0.5, trainable=False)
    session.run(tf1.global_variables_initializer())
    tf1.train.Saver().save(session, path, write_meta_graph=False)
  new = checkpoint.convert(path, tmp_path / "new", "saver")
  keys = checkpoint.describe(new.path).keys
  assert [k for k in keys if "power" in k] == [
    "cond_1/beta1_power",
    "cond_1/beta2_power",
  ]


def test_powers_of_several_optimizers_are_not_the_replicas(tmp_path):
  path = str(tmp_path / "model")
  powers = ["beta1_power", "beta1_power_1", "beta2_power", "beta2_power_1"]
  with tf.Graph().as_default(), tf1.Session() as session:
    scaler_programs._variable(8.0, tf.float32, "loss_scale")
    scaler_programs._variable(1, tf.int32, "loss_scale_normal_steps")
    for name in powers:
      tf1.get_variable(name, initializer=0.5, trainable=False)
    session.run(tf1.global_variables_initializer())
    tf1.train.Saver().save(session, path, write_meta_graph=False)
  with pytest.raises(CheckpointError, match="beta1_power_1"):
    checkpoint.convert(path, tmp_path / "new", "saver")


@pytest.mark.parametrize("like", ["thumt", "tf_cnn_benchmarks"])
def test_the_users_word_holds_beside_a_metagraph_of_no_rule(like, tmp_path):
  path = str(tmp_path / "model")
  variables = {
    "thumt": {"scale": 8.0, "iter": 5, "rescale_iter": 1, "overflow_iter": 2}
    | {"overflow": 1},
    "tf_cnn_benchmarks": {"loss_scale": 8.0, "loss_scale_normal_steps": 3},
  }[like]
  with tf.Graph().as_default(), tf1.Session() as session:
    for name, value in variables.items():
      scaler_programs._variable(
        value, tf.float32 if type(value) is float else tf.int32, name
      )
    session.run(tf1.global_variables_initializer())
    tf1.train.Saver().save(session, path)
  assert not checkpoint.describe(path).loss_scales
  (state,) = checkpoint.describe(path, like=like).loss_scales
  assert state.value == 8


def _variable(value, dtype, name=None):
  return scaler_programs._variable(value, dtype, name)


def build_backoff(
  divides=True,
  finite=False,
  step=1,
  rest=0,
  clip=lambda x: x,
  own=False,
  names=(),
):
  """Returns a program with Backoff's variables, and a rule that may differ.

  Args:
    divides: Whether gradients are divided by the variable that falls and grows.
    finite: Whether the graph checks gradients, and compares with `less`.
    step: What is added to the count of steps.
    rest: The remainder of the count at which the variable grows.
    clip: Clips the variable.
    own: Whether the program has a DynamicLossScale, too.
    names: The names of variables of the program's own.
  """
  weight = tf1.get_variable("layer/w", [2], use_resource=False)
  bad = tf1.placeholder(tf.bool, [])
  iteration = _variable(0, tf.int64)
  last, scale = _variable(-1, tf.int64), _variable(2048.0, tf.float32)
  for name in names:
    _variable(5, tf.int32, name)
  optimizer = tf1.train.GradientDescentOptimizer(1.0 if divides else scale)
  loss = tf.reduce_sum(weight * weight)
  loss = loss * scale / scale if divides else loss
  if own:
    optimizer = tfl.MixedPrecisionLossScaleOptimizer(optimizer, "dynamic")
  if finite:
    bad = tf.logical_or(bad, tf.math.is_inf(loss))
  with tf.control_dependencies([tf1.assign_add(iteration, step)]):
    update = tf1.cond(
      bad,
      lambda: tf.group(
        tf1.assign(scale, clip(scale / 2.0)), tf1.assign(last, iteration)
      ),
      lambda: tf1.cond(
        tf.less((iteration - last) % 3, 1)
        if finite
        else tf.equal((iteration - last) % 3, rest),
        lambda: tf.group(tf1.assign(scale, clip(scale * 2.0))),
        tf.no_op,
      ),
    )
  with tf.control_dependencies([update]):
    op = optimizer.minimize(loss)
  return scaler_programs.Built(op, bad)


def test_a_rule_that_the_graph_shows(tmp_path):
  _, state = describe(
    tmp_path,
    build_backoff,
    clip=lambda x: tf.clip_by_value(tf.minimum(x, 2.0**24), 1.0, 4096.0),
  )
  assert state.rule["increment_period"] == 3 and "4096" in str(state.notes)
  assert str(2**24) not in str(state.notes) + str(state.policy)


@pytest.mark.parametrize(
  "options", [{"divides": False}, {"step": 2}, {"rest": 1}]
)
def test_a_rule_that_only_looks_like_one(options, tmp_path):
  """Checks a learning rate that falls and grows, and rules of other counts."""
  path = save(tmp_path, build_backoff, **options)
  assert not checkpoint.describe(path).loss_scales


def test_other_ways_to_write_a_rule(tmp_path):
  """Checks a scale by which nothing divides, and another comparison."""
  path = save(tmp_path, build_backoff, divides=False, finite=True)
  (state,) = checkpoint.describe(path).loss_scales
  assert state.rule["increment_period"] == 3


@pytest.mark.parametrize("divides", [True, False])
def test_another_loss_scale_is_not_replaced(divides, tmp_path):
  path = save(tmp_path, build_backoff, own=True, divides=divides)
  want = tf.train.load_variable(path, "current_loss_scale")
  d = checkpoint.describe(path)
  if divides:
    assert any("several loss scales" in note for note in d.notes)
  with helpers.control_flow(False), tf.Graph().as_default():
    session, scale = build_today(["layer/w"])
    checkpoint.restore(session, path, missing="initialize")
    assert session.run(scale()) == want
  checkpoint.convert(path, tmp_path / "new", "saver")
  reader = tf.train.load_checkpoint(str(tmp_path / "new"))
  assert reader.get_tensor("current_loss_scale") == want
  assert reader.has_tensor("Variable_2")
  with pytest.raises(CheckpointError, match="has another loss scale"):
    checkpoint.restore(session, path, like="openseq2seq")


def test_a_programs_own_variables_without_names_get_no_counts(tmp_path):
  path = save(tmp_path, _SEQ2SEQ, scope=None)
  with helpers.control_flow(False), tf.Graph().as_default():
    own = _variable(77, tf.int64)
    session, _ = build_today(["layer/w"])
    with pytest.raises(CheckpointError, match="Variable"):
      checkpoint.restore(session, path)
    report = checkpoint.restore(session, path, mapping={"Variable": None})
    assert session.run(own) == 77 and list(report.initialized) == ["Variable"]


def test_a_users_iter_1_beside_thumts(tmp_path):
  def build():
    built = scaler_programs.thumt()
    scaler_programs._variable(2900, tf.int32, "iter")
    return built

  path = save(tmp_path, build, meta=False)
  (state,) = checkpoint.describe(path).loss_scales
  assert state.good_steps < 10 and "iter_1" not in state.names
  weights = checkpoint.convert(path, tmp_path / "new", "weights")
  assert "iter_1" in weights.written


def test_bounds_of_each_other_do_not_hang(tmp_path):
  path = save(tmp_path, build_backoff)
  with helpers.control_flow(False), tf.Graph().as_default() as graph:
    build_backoff()
    x = tf.minimum(tf1.placeholder(tf.float32, [], "x"), 1.0, name="a")
    tf1.assign(
      tf1.get_collection("variables")[-1], tf.minimum(x, 2.0, name="b")
    )
    meta = tf1.train.export_meta_graph(graph=graph)
  for node in meta.graph_def.node:
    if node.name == "a":
      node.input[0] = "b"
  pathlib.Path(f"{path}.meta").write_bytes(meta.SerializeToString())
  checkpoint.describe(path)


def test_a_metagraph_that_is_not_used_is_named(tmp_path, monkeypatch):
  path = save(tmp_path, _SEQ2SEQ)
  meta = pathlib.Path(f"{path}.meta")
  (state,) = checkpoint.describe(path).loss_scales
  assert state.rule
  begin = meta.read_bytes()[: meta.stat().st_size // 2]

  def get_first_note():
    return checkpoint.describe(path).notes[0]

  with monkeypatch.context() as patch:
    patch.setattr(meta_graph, "LARGEST_TO_DESCRIBE", 10)
    assert "up to 10 are read" in get_first_note()
    assert not checkpoint.describe(path).loss_scales
  os.utime(meta, (1, 1))
  assert get_first_note().startswith(f"{meta} is not used: it is older")
  os.utime(meta)
  meta.write_bytes(begin)
  assert get_first_note() == f"{meta} is not used: it is damaged"
  meta.unlink()
  assert "is not used" not in get_first_note()


def test_a_loss_scale_stays_one(tmp_path):
  path = save(tmp_path, _SEQ2SEQ)
  scale = checkpoint.describe(path).loss_scales[0].names[0]
  for name, is_right in (("foo", False), ("s/current_loss_scale", True)):
    if is_right:
      checkpoint.convert(path, tmp_path / "new", "saver", mapping={name: scale})
      assert checkpoint.describe(tmp_path / "new").loss_scales
    else:
      with pytest.raises(CheckpointError, match="must end in current_loss_s"):
        checkpoint.convert(
          path, tmp_path / "new", "saver", mapping={name: scale}
        )


@pytest.mark.parametrize("options", [[], ["--policy=growth_interval=9"]])
def test_the_state_for_another_system_has_the_proven_rule(
  options, tmp_path, capsys
):
  path = save(tmp_path, _CNN)
  (state,) = checkpoint.describe(path).loss_scales
  assert not main.main(["inspect", path, "--like=Torch", *options])
  found = json.loads(capsys.readouterr().out)
  proven = state.rule["increment_period"]
  assert proven != 2000
  assert found["growth_interval"] == (9 if options else proven)


def test_without_a_metagraph_the_user_says_the_system(tmp_path, capsys):
  path = save(tmp_path, _SEQ2SEQ, "x..x", meta=False, before=2)
  d = checkpoint.describe(path)
  assert not d.loss_scales and "--like=openseq2seq" in d.notes[0]
  with tf.Graph().as_default():
    session, scale = build_today(["layer/w"])
    report = checkpoint.restore(session, path)
    assert session.run(scale()) == 2.0**15 and report.notes == d.notes
    report = checkpoint.restore(session, path, like="openseq2seq")
    assert session.run(scale()) == 1024 and not report.initialized
    saver = checkpoint.Saver()
    saver.like = "openseq2seq"
    saver.restore(session, path)
    assert saver.last_report.notes == report.notes
  new = str(tmp_path / "new")
  assert not main.main(
    ["convert", path, new, "--to=saver", "--like=openseq2seq"]
  )
  assert not main.main(["inspect", path, "--like=openseq2seq"])
  assert "1024, 0 good steps" in capsys.readouterr().out


def test_a_count_modulo_an_unknown_window_is_not_guessed(tmp_path):
  path = save(tmp_path, _SEQ2SEQ, "x.....", meta=False)
  (state,) = checkpoint.describe(path, like="openseq2seq").loss_scales
  assert state.good_steps is None
  with tf.Graph().as_default():
    session, _ = build_today(["layer/w"])
    report = checkpoint.restore(session, path, like="openseq2seq")
    assert list(report.initialized) == ["good_steps"]
    assert any("nothing shows the window" in note for note in report.notes)


@pytest.mark.parametrize(
  ("like", "message"),
  [
    ("torch", "is no system"),
    ("thumt", "no variables of such a loss scale"),
    ("openseq2seq", "several groups"),
  ],
)
def test_what_the_user_says_must_fit(like, message, tmp_path):
  path = save(tmp_path, save_two_groups, meta=False)
  with pytest.raises(CheckpointError, match=message) as error:
    checkpoint.convert(path, tmp_path / "new", "saver", like=like)
  assert str(error.value).startswith(path) and "\n" not in str(error.value)
  assert not os.path.exists(tmp_path / "new.index")


def save_two_groups():
  for scope in ("a", "b"):
    with tf1.variable_scope(scope):
      for value, dtype in ((0, tf.int64), (-1, tf.int64), (8.0, tf.float32)):
        tf1.Variable(value, trainable=False, dtype=dtype)
  return scaler_programs.Built(tf.no_op(), tf1.placeholder(tf.bool, []))


@pytest.mark.parametrize(
  "variables",
  [
    {"scale": 2.0, "iter": 3},
    {"loss_scale": 2.0, "loss_scale_normal_steps": 1.0},
    {"scale": 2.0, "iter": 3, "rescale_iter": 1, "overflow_iter": 1},
    {"s/loss_scale": 2.0, "s/loss_scale_normal_steps": 3},
    {"Variable": 3, "Variable_1": 2.0},
  ],
)
@pytest.mark.parametrize("meta", [False, True])
def test_a_users_variables_of_some_such_names(variables, meta, tmp_path):
  check_users_variables(variables, meta, tmp_path)


@pytest.mark.parametrize(
  "variables",
  [
    {"loss_scale": 2.0, "loss_scale_normal_steps": 3},
    {
      "scale": 2.0,
      "iter": 3,
      "rescale_iter": 1,
      "overflow_iter": 1,
      "overflow": 1,
    },
    {"Variable": 3, "Variable_1": 4, "Variable_2": 2.0},
  ],
)
def test_a_graph_shows_that_all_such_names_are_the_users(variables, tmp_path):
  check_users_variables(variables, True, tmp_path)


def check_users_variables(variables, meta, folder):
  """Checks that variables are restored as they are, as no loss scale's."""

  def build():
    for name, value in variables.items():
      whole = tf.int64 if "Variable" in name else tf.int32
      dtype = whole if isinstance(value, int) else tf.float32
      tf1.get_variable(
        name, initializer=tf.constant(value, dtype), trainable=False
      )

  path = str(folder / "model")
  with tf.Graph().as_default(), tf1.Session() as session:
    build()
    session.run(tf1.global_variables_initializer())
    tf1.train.Saver().save(session, path, write_meta_graph=meta)
  d = checkpoint.describe(path)
  assert not d.loss_scales and d.api is None
  with tf.Graph().as_default():
    build()
    session, scale = build_today(["w"])
    report = checkpoint.restore(session, path, missing="initialize")
    assert set(report.restored) == set(variables) and not report.bridged
    assert session.run(scale()) == 2.0**15
  if meta or not any("loss_scale" in name for name in variables):
    new = checkpoint.convert(path, folder / "new", "saver")
    assert not new.renamed and not new.notes


def test_a_port_of_contribs_loss_scale_is_described_as_contribs(tmp_path):
  def build():
    w = tf1.get_variable("w", [2], use_resource=False)
    scale = scaler_programs._variable(8.0, tf.float32, "loss_scale")
    good = scaler_programs._variable(1, tf.int32, "good_steps")
    bad = scaler_programs._variable(0, tf.int32, "bad_steps")
    overflow = tf1.placeholder(tf.bool, [], name="status")

    def fall():
      more = tf1.assign_add(bad, 1)
      lower = tf.where(more > 1, scale * 0.5, scale)
      return tf.group(tf1.assign(scale, lower), tf1.assign(good, 0))

    def grow():
      more = tf1.assign_add(good, 1)
      upper = tf.where(more > 2, scale * 2.0, scale)
      return tf.group(tf1.assign(scale, upper), tf1.assign(bad, 0))

    (gradient,) = tf.gradients(tf.reduce_sum(w * w) * scale, [w])
    inner = tf1.train.AdamOptimizer(0.1)
    train = tf1.cond(
      overflow,
      tf.no_op,
      lambda: inner.apply_gradients([(gradient / scale, w)]),
    )
    op = tf.group(train, tf1.cond(overflow, fall, grow))
    return scaler_programs.Built(op, overflow)

  path = save(tmp_path, build)
  meta = tf1.MetaGraphDef()
  with open(path + ".meta", "rb") as file:
    meta.ParseFromString(file.read())
  for node in meta.graph_def.node:
    if node.name == "status":
      node.op = "OpOfOtherHardware"
  with open(path + ".meta", "wb") as file:
    file.write(meta.SerializeToString())
  d = checkpoint.describe(path)
  (state,) = d.loss_scales
  assert d.api == "contrib"
  assert state.names == ("loss_scale", "good_steps", "bad_steps")
  with tf.Graph().as_default():
    session, scale = build_today(["w"])
    checkpoint.restore(session, path, missing="initialize")
    assert session.run(scale()) == state.value


def test_a_dead_loss_scale_of_a_horovod_wrapper_is_named(tmp_path):
  def build():
    w = tf1.get_variable("w", [2])
    optimizer = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale()
    )
    tfl.DynamicLossScale()._weights  # noqa: B018
    factor = tf1.placeholder(tf.bool, [])
    loss = tf.reduce_sum(w) * tf.where(factor, float("inf"), 1.0)
    return scaler_programs.Built(optimizer.minimize(loss), factor)

  d, state = describe(tmp_path, build)
  assert state.names == ("current_loss_scale", "good_steps")
  assert len(d.loss_scales) == 1
  (note,) = d.notes
  assert note.startswith("dead: current_loss_scale_1, good_steps_1")
  with tf.Graph().as_default():
    session, scale = build_today(["w"])
    report = checkpoint.restore(session, d.path, missing="initialize")
    assert session.run(scale()) == state.value
    assert {"current_loss_scale_1", "good_steps_1"} <= set(report.unused)
