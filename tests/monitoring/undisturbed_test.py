# SPDX-License-Identifier: Apache-2.0
"""Tests that a hook changes nothing but what it adds below its name scope."""

import math
import random
import re

import helpers
import monitored_runs
import numpy as np
import pytest
import random_builder
import random_optimizers
import random_programs
import tensorflow as tf

from tf_compat_lossscale import monitoring

tf1 = tf.compat.v1
_SCOPE = "LossScaling/monitoring/"


def describe(graph, own=True):
  """Returns the ops of a graph in their order, with all that defines them."""
  found = []
  for op in graph.get_operations():
    if not own and op.name.startswith(_SCOPE):
      continue
    node = tf1.NodeDef.FromString(op.node_def.SerializeToString())
    for value in node.attr.values():
      # The process counts all its functions.
      value.func.name = re.sub(r"_\d+$", "", value.func.name)
    found.append(node.SerializeToString(deterministic=True))
  return found


def describe_collections(graph):
  """Returns key -> the names of the items, for collections that have some."""
  return {
    key: [getattr(x, "name", str(x)) for x in graph.get_collection(key)]
    for key in graph.get_all_collection_keys()
    if graph.get_collection(key)
  }


# Random programs ----


class _Random:
  """A random program in a graph, whose gradients are fed."""

  def __init__(self, seed, folder) -> None:
    rng = random.Random(seed)
    self.mode = rng.choice(helpers.GRAPH_MODES)
    use_resource = rng.random() < 0.6 or self.mode == "graph_v2"
    shapes = [rng.choice([(), (2,), (3, 2)]) for _ in range(rng.randint(1, 4))]
    clips = rng.random() < 0.5
    self._config = random_optimizers.session_config(rng)
    kind = rng.choice(sorted(helpers.INNER))
    self._steps = [
      [
        rng.choice([0.5, -1.0, 0.0, 1e20])
        if rng.random() < 0.9
        else rng.choice([math.inf, math.nan])
        for _ in shapes
      ]
      for _ in range(60)
    ]
    with helpers.mode_scope(self.mode) as self.graph:
      variables = [
        tf1.get_variable(
          f"v{i}",
          shape,
          initializer=tf1.constant_initializer(1.0 + i),
          use_resource=use_resource,
        )
        for i, shape in enumerate(shapes)
      ]
      step = tf1.get_variable(
        "step",
        [],
        tf.int64,
        tf1.zeros_initializer(),
        trainable=False,
        use_resource=use_resource,
      )
      self._feeds = [tf1.placeholder(tf.float32, x) for x in shapes]
      self.loss = tf.add_n(
        [tf.reduce_sum(v * g) for v, g in zip(variables, self._feeds)]
      )
      opt = monitored_runs.make_sgd(64.0, 3)
      opt._optimizer = helpers.INNER[kind]()
      grads = [g for g, _ in opt.compute_gradients(self.loss, variables)]
      if clips:
        grads, _ = tf.clip_by_global_norm(grads, 100.0)
      self.train = opt.apply_gradients(zip(grads, variables), step)
      self.saver = tf1.train.Saver()
      self.state = tf1.global_variables()
      self.before = describe(self.graph), describe_collections(self.graph)
      self.hook = None
      if folder is not None:
        self.hook = monitoring.LossScaleHook(
          opt, folder, every_n_steps=rng.choice([1, 7, 100])
        )
        self.hook.begin()

  def run(self, path):
    """Trains; returns the losses, the state, and the checkpoint's bytes."""
    with tf1.Session(graph=self.graph, config=self._config) as session:
      session.run([v.initializer for v in self.state])
      losses = []
      for values in self._steps:
        feed = {
          x: np.full(x.shape, value, np.float32)
          for x, value in zip(self._feeds, values)
        }
        fetches = [self.train, self.loss]
        if self.hook is None:
          losses.append(session.run(fetches, feed)[1].tobytes())
        else:
          losses.append(self.hook.run(session, fetches, feed)[1].tobytes())
      if self.hook is not None:
        self.hook.end(session)
      state = session.run({v.op.name: v for v in self.state})
      self.saver.save(session, str(path), write_meta_graph=False)
    data = path.parent / f"{path.name}.data-00000-of-00001"
    index = path.parent / f"{path.name}.index"
    return losses, state, data.read_bytes(), index.read_bytes()


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(tmp_path, seed):
  bare = _Random(seed, None)
  watched = _Random(seed, tmp_path / "log")
  assert bare.before == watched.before
  # The hook adds ops after all others, and no collection.
  assert describe(watched.graph, own=False) == bare.before[0]
  assert describe(watched.graph)[: len(bare.before[0])] == bare.before[0]
  assert describe_collections(watched.graph) == bare.before[1]
  (tmp_path / "a").mkdir()
  (tmp_path / "b").mkdir()
  expected = bare.run(tmp_path / "a" / "model")
  found = watched.run(tmp_path / "b" / "model")
  assert found[0] == expected[0]
  helpers.assert_same_state(found[1], expected[1])
  assert found[2:] == expected[2:]
  lines = monitored_runs.assert_same_series(tmp_path / "log")
  assert lines[-1]["step"] == 60


@pytest.mark.parametrize("seed", range(8))
def test_random_sets_of_optimizers(seed):
  program = random_programs.program_of(seed)
  rng = random.Random(seed)
  variant = random_programs.variant_of(rng, program)
  graphs = []
  for with_hooks in False, True:
    built = random_builder.Built(program, variant, random_builder.Api("tfl"))
    before = describe(built.graph), describe_collections(built.graph)
    graphs.append(before)
    if with_hooks:
      with built.graph.as_default():
        for name, opt in built.objects.items():
          scaled = variant["kinds"].get(name, "plain") != "plain"
          if name.startswith("opt") and scaled:
            monitoring.LossScaleHook(opt).begin()
      assert describe(built.graph, own=False) == before[0]
      assert describe_collections(built.graph) == before[1]
  assert graphs[0] == graphs[1]


# Where the hook begins ----


def test_ops_depend_on_no_scope_of_the_caller():
  with tf.Graph().as_default() as graph:
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    opt = monitored_runs.make_sgd()
    train = opt.minimize(tf.reduce_sum(v))
    bomb = tf.debugging.Assert(False, ["The hook ran an op of the caller."])
    before = len(graph.get_operations())
    hook = monitoring.LossScaleHook(opt)
    with (
      tf.control_dependencies([bomb]),
      tf.name_scope("scope"),
      tf1.variable_scope("variables"),
    ):
      hook.begin()
    new = graph.get_operations()[before:]
    assert all(op.name.startswith(_SCOPE) for op in new)
    assert len(new) > 10
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      hook.run(session, train)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_an_exported_graph_trains(tmp_path, mode):
  with helpers.mode_scope(mode):
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    factor = tf1.placeholder(tf.float32, [], "factor")
    opt = monitored_runs.make_sgd()
    train = opt.minimize(
      tf.reduce_sum(v * factor), tf1.train.get_or_create_global_step()
    )
    hook = monitoring.LossScaleHook(opt)
    hook.begin()
    saver = tf1.train.Saver()
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      hook.run(session, train, {factor: 1.0})
      saver.save(session, str(tmp_path / "model"))
  with tf.Graph().as_default() as graph, tf1.Session() as session:
    saver = tf1.train.import_meta_graph(str(tmp_path / "model.meta"))
    saver.restore(session, str(tmp_path / "model"))
    fetch = [op for op in graph.get_operations() if op.name.startswith(_SCOPE)]
    (vector,) = (
      x for op in fetch if op.type == "StatelessIf" for x in op.outputs
    )
    for value in 1.0, math.inf, 1.0:
      _, seen = session.run([train.name, vector], {"factor:0": value})
      assert seen[0] == math.isfinite(value)
    found = session.run(tf1.get_collection("variables", "v:")[0])
    np.testing.assert_array_equal(found, [-0.5, -0.5])


def test_checkpoints_have_no_more_keys(tmp_path):
  keys = []
  for with_hook in False, True:
    with tf.Graph().as_default():
      v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
      opt = monitored_runs.make_sgd()
      opt.minimize(tf.reduce_sum(v), tf1.train.get_or_create_global_step())
      if with_hook:
        monitoring.LossScaleHook(opt).begin()
      with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        path = str(tmp_path / f"model{with_hook}")
        by_name = tf1.train.Saver().save(session, path)
        by_object = tf.train.Checkpoint(opt=opt).write(path + "o", None)
      keys.append([tf.train.list_variables(x) for x in (by_name, by_object)])
  assert keys[0] == keys[1]


if __name__ == "__main__":
  helpers.main()
