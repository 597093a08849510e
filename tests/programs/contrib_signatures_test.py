# SPDX-License-Identifier: Apache-2.0
"""Tests that names of `tf.contrib` take the arguments that 1.15.5 took.

`legacy/contrib_signatures.json` has what `contrib_signatures.py` printed on
TensorFlow 1.15.5.
"""

import json
import os

import contrib_signatures
import contrib_table
import helpers
import processes
import pytest

import tf_compat_lossscale as tfl

_RECORDED = contrib_table.RECORDED
_CURRENT = """
import json
import sys
import tf_compat_lossscale as tfl
sys.path.insert(0, "tests/programs")
import contrib_signatures
tfl.install()
names = json.loads(sys.argv[1])
print(json.dumps(contrib_signatures.describe_names(names, True)))
"""

# Parameters that differ, and do not matter, by the end of a name: the default
# means the same, or only TensorFlow calls the method, by position.
_SAME = {
  "CsvDataset.interleave": {"cycle_length", "block_length"},
  "CsvDataset.shuffle": {"reshuffle_each_iteration"},
  "RandomDataset.interleave": {"cycle_length", "block_length"},
  "RandomDataset.shuffle": {"reshuffle_each_iteration"},
  "SqlDataset.interleave": {"cycle_length", "block_length"},
  "SqlDataset.shuffle": {"reshuffle_each_iteration"},
  "data.make_batched_features_dataset": {"reader"},
  "CollectiveAllReduceStrategy": {"communication"},
  "layers.safe_embedding_lookup_sparse": {"combiner"},
  "Dataset.zip": {"datasets"},
  ".build": {"_", "inputs_shape", "input_shape"},
  "CrossDeviceOps.batch_reduce_implementation": {"options"},
  "CrossDeviceOps.reduce_implementation": {"options"},
  # TensorFlow finds the GPUs itself.
  "cluster_resolver.SlurmClusterResolver": {"gpus_per_node", "gpus_per_task"},
}
# Parameters that nothing takes any more, and which hardly any program gives: an
# error names them.
_GONE_PARAMETERS = {
  "distribute.AllReduceCrossDeviceOps": {
    "agg_small_grads_max_bytes",
    "agg_small_grads_max_group",
  },
  "eager.Iterator.get_next": {"name"},
  "eager.make_template": {"create_graph_function_"},
  "tpu.InfeedQueue": {"name"},
}
# What 1.15.5 described as (*args, **kwargs), since a decorator hid the rest.
_HIDDEN = ["*args", "**kwargs"]
# Members that nothing serves: asking for one is an error that names it.
_GONE = {
  "data.Optional": {"none_from_structure", "value_structure"},
  # No layer of Keras here: the variables are those of its scope.
  "rnn.LSTMBlockFusedCell": {"build", "call"},
  # The protocol buffer of hyperparameters went: see `to_json`.
  "training.HParams": {"from_proto", "to_proto"},
}


def _name(parameter):
  return parameter.split("=")[0].removeprefix("only ")


def find_differences(old, new):
  """Returns the parameters that a call of 1.15.5 cannot give as it did."""
  if old == _HIDDEN:
    return set()
  stars = {p for p in new if p.startswith("*")}
  by_name = {_name(p): p for p in new}
  wrong = set()
  for i, parameter in enumerate(old):
    name = _name(parameter)
    if parameter.startswith("**"):
      if not any(p.startswith("**") for p in stars):
        wrong.add(parameter)
    elif parameter.startswith("*"):
      if not any(not p.startswith("**") for p in stars):
        wrong.add(parameter)
    elif name not in by_name:
      if not {"*args", "**kwargs"} <= stars:
        wrong.add(name)
    elif (
      i >= len(new)
      or _name(new[i]) != name
      or ("=" in parameter and by_name[name] != parameter)
    ):
      wrong.add(name)
  for parameter in new[len(old) :]:
    if "=" not in parameter and not parameter.startswith("*"):
      wrong.add(parameter)
  return wrong


@pytest.fixture(scope="module")
def current():
  printed = processes.run_forked(
    "-c",
    _CURRENT,
    json.dumps(contrib_table.list_names()),
    cwd=helpers.ROOT,
    **helpers.KERAS_2,
  )
  return json.loads(printed.splitlines()[-1])


def test_names_take_the_arguments_of_1_15(current):
  wrong = {}
  for name, old in _RECORDED["signatures"].items():
    if name not in current:
      continue  # `contrib_names_test.py` says which may lack.
    new = current[name]
    for member, parameters in old.items():
      path = f"{name}.{member}" if member else name
      if member not in new:
        if member not in _GONE.get(name, ()):
          wrong[path] = "is gone"
      elif isinstance(parameters, list) and isinstance(new[member], list):
        found = find_differences(parameters, new[member])
        found -= _GONE_PARAMETERS.get(path, set())
        for end, same in _SAME.items():
          found -= same if path.endswith(end) else set()
        if found:
          wrong[path] = parameters, new[member]
  assert not wrong, json.dumps(wrong, indent=1)
  assert len(set(current) & set(_RECORDED["signatures"])) > 450


@pytest.mark.parametrize("name", sorted(_RECORDED["attributes"]))
def test_attributes_can_be_read_and_set(name):
  # TensorFlow 2 asks `_trackable_children` instead.
  gone = {"_checkpoint_dependencies"}
  # The parts of a step, which nothing calls.
  gone |= {"_down_scale", "_scale_loss", "_unscale_grads", "_scale_grad"}
  gone |= {"_doing_dynamic_loss_scaling", "_distributed_apply"}
  gone |= {"_apply_gradients"}
  with tfl.installed():
    value = contrib_signatures.describe_attributes()[name]
  for attribute in sorted(set(_RECORDED["attributes"][name]) - gone):
    assert hasattr(value, attribute), attribute
    if attribute.startswith("_"):
      setattr(value, attribute, "mine")
      assert getattr(value, attribute) == "mine", attribute


def test_changed_names_work(tmp_path):
  import tensorflow.compat.v1 as tf

  prefix = os.path.join(tmp_path, "model")
  tf1_checkpoint = tf.train.Checkpoint(v=tf.Variable(3.0))
  path = tf1_checkpoint.save(prefix)
  with tfl.installed():
    import tensorflow

    contrib = tensorflow.contrib
    names = contrib.framework.list_variables(checkpoint_dir=path)
    key = next(name for name, _ in names if name.startswith("v/"))
    assert contrib.framework.load_variable(path, name=key) == 3.0
    reader = contrib.framework.load_checkpoint(filepattern=path)
    assert reader.has_tensor(key)
    with pytest.raises(TypeError, match="ckpt_dir_or_file"):
      contrib.framework.load_variable(ckpt_dir_or_file=path, name=key)

    twice = contrib.eager.defun(
      lambda x: x * 2, [tf.TensorSpec([None])], False, None, True
    )
    assert twice(tf.ones([3])).numpy().tolist() == [2, 2, 2]

    @contrib.eager.defun
    def thrice(x):
      return x * 3

    assert float(thrice(2.0)) == 6
    table = contrib.lookup.MutableDenseHashTable(
      tf.int64, tf.int64, -1, 0, -2, None, "mine", False
    )
    table.insert(tf.constant([5], tf.int64), tf.constant([7], tf.int64))
    assert table.lookup(tf.constant([5, 6], tf.int64)).numpy().tolist() == [
      7,
      -1,
    ]
    mutable = contrib.lookup.MutableHashTable(tf.string, tf.int64, -1)
    assert isinstance(mutable, contrib.lookup.MutableHashTable)
    assert mutable.lookup(tf.constant(["a"]), "named").numpy() == [-1]
    indices = contrib.lookup.index_table_from_tensor(mapping=["a", "b"])
    assert indices.lookup(tf.constant(["b", "z"])).numpy().tolist() == [1, -1]
    one = contrib.distribute.OneDeviceStrategy("/cpu:0")
    assert isinstance(one, tf.distribute.OneDeviceStrategy)
    assert one.experimental_run_v2(lambda x: x + 1, [1]) == 2
    mirrored = contrib.distribute.MirroredStrategy(num_gpus=0)
    assert isinstance(mirrored, contrib.distribute.MirroredStrategy)
    iterator = contrib.eager.Iterator(tf.data.Dataset.range(2))
    assert iterator.output_types is tf.int64 and iterator.next().numpy() == 0
    for name in ("learn.Head", "distribute.UpdateContext"):
      module, _, last = name.partition(".")
      with pytest.raises(AttributeError, match=last):
        getattr(getattr(contrib, module), last)
