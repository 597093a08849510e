# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of GrowthBackoff, and exchanges with other loss scales."""

import random

import checkpoint_contents
import growth_backoff_oracle as oracle
import helpers
from helpers import GRAPH_MODES
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
INF = float("inf")
_COUNTS = ("spent_hysteresis", "overflows", "steps_to_overflow")


class Program:
  """A Session program that trains `w` with a loss scale, in a new graph."""

  def __init__(self, make, mode="graph_v1", scope=None):
    self._scope = helpers.mode_scope(mode)
    with self._scope as graph, tf1.variable_scope(scope or ""):
      self.given = tf1.placeholder(tf.float32, [])
      self.w = tf1.get_variable("w", initializer=1.0, use_resource=True)
      self.step = tf1.train.get_or_create_global_step()
      with tf1.name_scope(f"{scope}/" if scope else None):
        self.scale = make()
      wrapper = tfl.MixedPrecisionLossScaleOptimizer
      if isinstance(self.scale, contrib.LossScaleManager):
        wrapper = contrib.LossScaleOptimizer
      self.opt = wrapper(tf1.train.AdamOptimizer(0.1), self.scale)
      self.train = self.opt.minimize(self.given * self.w, self.step)
      self.saver = checkpoint.Saver()
      initialize = tf1.global_variables_initializer()
    self.session = tf1.Session(graph=graph)
    self.session.run(initialize)

  def run(self, given):
    for each in given:
      self.session.run(self.train, {self.given: each})
    return self

  def save(self, folder, name="model"):
    with self.session.graph.as_default():
      return self.saver.save(self.session, str(folder / name))

  def restore(self, path):
    with self.session.graph.as_default():
      self.saver.restore(self.session, path)
    return self

  def restore_objects(self, path, **arguments):
    return checkpoint.restore(
      self.session, path, {"opt": self.opt, "w": self.w}, **arguments
    )

  def save_objects(self, folder):
    with self.session.as_default(), self.session.graph.as_default():
      saved = tf.train.Checkpoint(opt=self.opt, w=self.w)
      return saved.write(str(folder / "objects"))

  def state(self):
    variables = self.session.graph.get_collection("variables")
    values = self.session.run(variables)
    return {
      variable.name.split(":")[0]: value.item()
      for variable, value in zip(variables, values)
    }


@pytest.fixture(autouse=True)
def close_sessions(monkeypatch):
  """Closes the sessions of all programs of a test."""
  sessions = []
  make = tf1.Session

  def remember(*args, **kwargs):
    sessions.append(make(*args, **kwargs))
    return sessions[-1]

  monkeypatch.setattr(tf1, "Session", remember)
  yield
  for session in sessions:
    session.close()


def draw(seed):
  rng = random.Random(seed)
  arguments = oracle.draw_arguments(rng)
  make = lambda: policies.GrowthBackoff(**arguments)  # noqa: E731
  return make, oracle.draw_gradients(rng, 24)


@pytest.mark.any_release
@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_saved_and_restored_at_any_step(tmp_path, mode):
  make, given = draw(mode)
  program, again = Program(make, mode), Program(make, mode)
  early = program.run(given[:5]).save(tmp_path, "early")
  late = program.run(given[5:17]).save(tmp_path, "late")
  whole = program.run(given[17:]).state()
  for step, path in ((5, early), (17, late)):
    again.restore(path)
    assert again.saver.last_report is None  # All names are equal.
    assert again.run(given[step:]).state() == whole


@pytest.mark.any_release
def test_saved_and_restored_eagerly(tmp_path):
  make, given = draw("eagerly")
  path = str(tmp_path / "model")

  def run(policy, values):
    for each in values:
      policy.update([tf.constant(each)])
    return {name: x.numpy() for name, x in policy._weights.items()}

  for step in (0, 7):
    policy = make()
    run(policy, given[:step])
    tf.train.Checkpoint(scale=policy).write(path)
    other = make()
    tf.train.Checkpoint(scale=other).read(path).assert_consumed()
    assert run(other, given[step:]) == run(policy, given[step:])


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("old", "new"), [("graph_v1", "graph_v2"), ("graph_v2", "graph_v1")]
)
def test_from_dynamic_loss_scale_and_back(tmp_path, old, new):
  dynamic = Program(lambda: tfl.DynamicLossScale(64, 3), old)
  path = dynamic.run([1.0, INF, 1.0, 1.0]).save(tmp_path)
  policy = Program(lambda: policies.GrowthBackoff(8, growth_interval=3), new)
  policy.restore(path)
  report = policy.saver.last_report
  assert set(report.initialized) == {*_COUNTS, "skipped_steps"}
  assert "no such variable" in report.initialized["skipped_steps"]
  state = policy.state()
  assert (state["current_loss_scale"], state["good_steps"]) == (32, 2)
  assert state["global_step"] == 3
  policy.run([1.0, 1.0])
  path = policy.save(tmp_path, "policy")
  back = Program(lambda: tfl.DynamicLossScale(8, 3), old).restore(path)
  dynamic.run([1.0, 1.0])
  assert back.state() == dynamic.state()


@pytest.mark.any_release
def test_from_dynamic_loss_scale_and_back_by_object(tmp_path):
  dynamic = Program(lambda: tfl.DynamicLossScale(64, 3)).run([1.0, INF, 1.0])
  path = dynamic.save_objects(tmp_path)
  policy = Program(lambda: policies.GrowthBackoff(8.0))
  report = policy.restore_objects(path)
  names = {each.rpartition("/")[2] for each in report.initialized}
  assert names == {*_COUNTS, "skipped_steps"}
  state = policy.state()
  assert (state["current_loss_scale"], state["good_steps"]) == (32, 1)
  path = policy.save_objects(tmp_path)
  back = Program(lambda: tfl.DynamicLossScale(8, 3))
  assert not back.restore_objects(path).initialized
  assert back.state()["current_loss_scale"] == 32


@pytest.mark.any_release
@pytest.mark.parametrize("by_object", [False, True])
def test_from_contrib(tmp_path, by_object):
  def make():
    return contrib.ExponentialUpdateLossScaleManager(64.0, 3, 3, 2, 0.5)

  manager = make()
  old = Program(make).run([1.0, INF, 1.0, INF, 1.0])
  policy = Program(manager.to_loss_scale)
  if by_object:
    policy.restore_objects(old.save_objects(tmp_path))
  else:
    policy.restore(old.save(tmp_path))
  assert policy.state()["spent_hysteresis"] == 2
  for each in ([INF], [1.0, 1.0, 1.0], [INF, INF]):
    old.run(each)
    policy.run(each)
    assert policy.state()["current_loss_scale"] == old.state()["loss_scale"]
    assert policy.state()["spent_hysteresis"] == old.state()["bad_steps"]


@pytest.mark.any_release
@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_another_policy_goes_on(tmp_path, mode):
  old = Program(
    lambda: policies.GrowthBackoff(2.0**16, growth_interval=100), mode
  )
  path = old.run([1.0] * 5 + [INF] * 2 + [1.0] * 3).save(tmp_path)
  new = Program(
    lambda: policies.GrowthBackoff(
      2.0**20, growth_interval=3, hysteresis=2, min_loss_scale=2.0**18
    ),
    mode,
  )
  with new.session.graph.as_default():
    scale = new.scale()
  new.restore(path)
  assert new.saver.last_report is None
  assert new.state()["good_steps"] == 3
  assert new.state()["skipped_steps"] == 2
  assert new.state()["current_loss_scale"] == 2.0**14
  assert new.session.run(scale) == 2.0**18  # The new floor holds at once.
  new.run([1.0])  # The interval is over, since it is shorter now.
  assert new.session.run(scale) == 2.0**19
  new.run([INF])
  assert new.session.run(scale) == 2.0**19  # The new hysteresis.
  new.run([INF])
  assert new.session.run(scale) == 2.0**18


@pytest.mark.any_release
def test_two_policies_in_a_graph(tmp_path):
  def build():
    with tf.Graph().as_default() as graph:
      given = tf1.placeholder(tf.float32, [])
      for i in range(2):
        w = tf1.get_variable(f"w{i}", initializer=1.0, use_resource=True)
        opt = tfl.MixedPrecisionLossScaleOptimizer(
          tf1.train.GradientDescentOptimizer(0.1),
          policies.GrowthBackoff(8.0 + i, hysteresis=i + 1),
        )
        train = opt.minimize(given * w)
        tf1.add_to_collection("trains", train)
      saver = checkpoint.Saver()
      initialize = tf1.global_variables_initializer()
    session = tf1.Session(graph=graph)
    session.run(initialize)
    return session, saver, graph.get_collection("trains"), given

  session, saver, trains, given = build()
  session.run(trains, {given: INF})
  with session.graph.as_default():
    path = saver.save(session, str(tmp_path / "two"))
  values = session.run(session.graph.get_collection("variables"))
  session, saver, _, _ = build()
  with session.graph.as_default():
    saver.restore(session, path)
  assert session.run(session.graph.get_collection("variables")) == values
  states = checkpoint.describe(path).loss_scales
  assert [state.value for state in states] == [4, 9]
  assert [state.bad_steps for state in states] == [0, 1]
  assert [state.skipped_steps for state in states] == [1, 1]


@pytest.mark.any_release
@pytest.mark.parametrize("by_object", [False, True])
def test_described(tmp_path, by_object):
  policy = Program(lambda: policies.GrowthBackoff(64.0, hysteresis=3))
  policy.run([1.0, INF, INF, 1.0])
  save = policy.save_objects if by_object else policy.save
  (state,) = checkpoint.describe(save(tmp_path)).loss_scales
  assert (state.value, state.good_steps) == (64, 1)
  assert (state.bad_steps, state.skipped_steps) == (2, 2)
  assert len(state.names) == 6


@pytest.mark.any_release
def test_reset(tmp_path):
  policy = Program(policies.GrowthBackoff).run([1.0, INF, INF, 1.0])
  path = policy.save(tmp_path)
  new = str(tmp_path / "reset")
  checkpoint.convert(path, new, to="saver", set_loss_scale=2.0**10)
  again = Program(policies.GrowthBackoff).restore(new)
  state = again.state()
  assert state["current_loss_scale"] == 2.0**10
  assert not any(
    state[name] for name in ("good_steps", "skipped_steps", *_COUNTS)
  )
  expected = policies.GrowthBackoff(2.0**10)
  for given in (INF, 1.0):
    again.run([given])
    expected.update([tf.constant(given)])
    scale = again.state()["current_loss_scale"]
    assert scale == expected.current_loss_scale.numpy()


@pytest.mark.any_release
@pytest.mark.parametrize("to", ["fp32", "contrib"])
def test_converted_to_apis_without_policies(tmp_path, to):
  policy = Program(lambda: policies.GrowthBackoff(64.0))
  path = policy.run([1.0, INF, 1.0]).save(tmp_path)
  new = str(tmp_path / "new")
  done = checkpoint.convert(path, new, to=to)
  assert {"skipped_steps", *_COUNTS} <= set(done.dropped)
  names = set(checkpoint_contents.contents(new))
  assert names.isdisjoint(["skipped_steps", *_COUNTS])
  if to == "contrib":
    manager = contrib.ExponentialUpdateLossScaleManager
    old = Program(lambda: manager(8.0, 10))
    old.restore(new)
    assert old.state()["loss_scale"] == 32


@pytest.mark.any_release
def test_a_users_variables_of_such_names(tmp_path):
  def make():
    for name in ("skipped_steps", "overflows"):
      tf1.get_variable(name, initializer=np.int64(7), use_resource=True)
    return tfl.DynamicLossScale(8.0)

  old = Program(make).run([1.0])
  path = old.save(tmp_path)
  new = Program(make)
  new.session.run(new.session.graph.get_operation_by_name("w/Assign"))
  new.restore(path)
  assert new.state() == old.state()
  (state,) = checkpoint.describe(path).loss_scales
  assert state.skipped_steps is None


if __name__ == "__main__":
  helpers.main()
