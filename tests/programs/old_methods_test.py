# SPDX-License-Identifier: Apache-2.0
"""Tests that options of a `tf.data.Dataset` may be changed, as once."""

import legacy_processes
import tensorflow as tf

import tf_compat_lossscale as tfl

_PROGRAM = """
import tensorflow as tf

def shown(d):
  o = d.options()
  return (o.experimental_optimization.map_and_batch_fusion,
          o.experimental_optimization.noop_elimination,
          o.experimental_deterministic,
          o.experimental_distribute.auto_shard_policy.name)

first = tf.data.Options()
first.experimental_optimization.noop_elimination = True
first.experimental_deterministic = False
first.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.OFF)
d = tf.data.Dataset.range(4).with_options(first).map(lambda x: x + 1).batch(4)
options = d.options()
options.experimental_optimization.map_and_batch_fusion = False
options.experimental_deterministic = True
print(shown(d))
d = d.with_options(options)
print(shown(d))
with tf.Session() as session:
  print(session.run(d.make_one_shot_iterator().get_next()))
"""


_OLD = """
import sys
import tensorflow as tf

sys.stderr = sys.stdout
o = tf.data.Options()
old = o.experimental_optimization
old.map_vectorization.enabled = True
old.map_vectorization.use_choose_fastest = True
old.hoist_random_uniform = True
old.autotune_buffers = False
old.autotune = False
o.experimental_stats.latency_all_edges = True
o.experimental_stateful_whitelist = None
o.experimental_autotune = False
o.experimental_distribute.auto_shard = False
o.experimental_map_fusion = True
print(o.autotune.enabled, o.experimental_autotune, old.map_fusion)
print(o.experimental_distribute.auto_shard_policy.name)
for owner, name in ((old, 'map_vectorisation'), (o, 'experimental_stat'),
                    (o, 'no_such'),
                    (o.experimental_distribute, 'auto_shards')):
  try:
    setattr(owner, name, True)
  except AttributeError:
    print('typo')
d = tf.data.Dataset.range(3).with_options(o)
changed = d.options()
changed.experimental_optimization.map_vectorization.enabled = False
with tf.Session() as session:
  print(session.run(tf.data.make_one_shot_iterator(
    d.with_options(changed).batch(3)).get_next()))
"""


def test_dropped_options_do_nothing_and_moved_ones_move(tmp_path):
  program = legacy_processes.program(tmp_path, _OLD)
  printed = legacy_processes.run_forked("--tf1", program, cwd=tmp_path)
  said, *lines = printed.splitlines()
  assert "map_vectorization of tf.data's OptimizationOptions" in said
  assert "does nothing" in said
  expected = ["False False True", "OFF", *["typo"] * 4]
  assert lines[:6] == expected and lines[-1] == "[0 1 2]"
  assert "does nothing" not in "".join(lines)


def test_uninstall_takes_the_options_back():
  options = tf.data.Options
  before = vars(options)["experimental_optimization"]
  with tfl.installed():
    options().experimental_stats.prefix = "mine"
  assert not hasattr(options(), "experimental_stats")
  assert vars(options)["experimental_optimization"] is before


def test_a_program_changes_the_options_of_a_dataset(tmp_path):
  program = legacy_processes.program(tmp_path, _PROGRAM)
  printed = legacy_processes.run_forked("--tf1", program, cwd=tmp_path)
  assert printed.splitlines() == [
    "(None, True, False, 'OFF')",
    "(False, True, True, 'OFF')",
    "[1 2 3 4]",
  ]
