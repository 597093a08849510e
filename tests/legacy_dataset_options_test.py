# SPDX-License-Identifier: Apache-2.0
"""Tests that options of a `tf.data.Dataset` may be changed, as once."""

import legacy_processes

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


def test_a_program_changes_the_options_of_a_dataset(tmp_path):
  program = legacy_processes.program(tmp_path, _PROGRAM)
  printed = legacy_processes.run_forked("--tf1", program, cwd=tmp_path)
  assert printed.splitlines() == [
    "(None, True, False, 'OFF')",
    "(False, True, True, 'OFF')",
    "[1 2 3 4]",
  ]
