# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints of old releases into the same and into other models.

The module is a program of its own, because TensorFlow 2's behavior is switched
for a whole process:

  python checkpoint_runner.py (v1|v2) GOLDEN_DIR... > results.json

The result is a dict: golden -> way of restoring -> rows and report, or a
traceback. The first row has the values right after the restore; the other rows
are as in the golden's expected.json. The report is None if the way has none.
"""

import json
import os
import sys
import tempfile
import traceback

import golden_runner
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
STEPS = 7  # Two of these steps are skipped, and then the loss scale grows.
# These goldens have both generations of names. Some of them have slots, a loss
# scale or a scope, and some have none.
IN_EVERY_WAY = {
  "tf-1.15.5/session_dynamic_adam",
  "tf-1.15.5/session_dynamic_scoped",
  "tf-1.15.5/session_fixed_adam",
  "tf-1.15.5/session_v2_behavior_rmsprop",
  "tf-2.8.4/session_dynamic_momentum_resource",
  "tf-2.8.4/session_v2_behavior_adam",
}


class Golden:
  """An old release's checkpoints of one program, by name and by object.

  Attributes:
    expected: The content of expected.json.
    by_name: The path of the checkpoint by name.
    by_object: The path of the checkpoint by object; None for tf.contrib, whose
      goldens have no such checkpoint.
    is_full: Whether to restore the golden in every way, including into programs
      that differ from the saved program.
  """

  def __init__(self, folder):
    with open(os.path.join(folder, "expected.json")) as file:
      self.expected = json.load(file)
    first = self.expected["steps_before"]
    self.expected["rows"] = self.expected["rows"][: first + STEPS]
    self.by_name = tf1.train.latest_checkpoint(folder)
    path = self.expected.get("object_path")
    self.by_object = path and os.path.join(folder, path)
    name = "/".join(folder.split(os.sep)[-2:])
    self.is_full = not path or name in IN_EVERY_WAY


def as_other_kind(expected):
  """Returns `expected` of a program with the other kind of loss scale."""
  kind = "dynamic" if expected["kind"] == "fixed" else "fixed"
  return expected | {"kind": kind, "increment_period": 3}


def as_other_api(expected):
  """Returns `expected` of a program with the loss scale of the other API."""
  compat = expected["api"].startswith("compat")
  api, kind = ("contrib", "exponential") if compat else ("compat.v1", "dynamic")
  kind = "fixed" if expected["kind"] == "fixed" else kind
  return expected | {"api": api, "kind": kind, "increment_period": 4}


class Model(golden_runner.Model):
  """The goldens' model with a Saver, and ways to restore checkpoints."""

  def __init__(self, expected):
    super().__init__(expected)
    self.saver = checkpoint.Saver()

  def restore_by_object(self, session, path):
    """Restores a checkpoint into the model's objects."""
    objects = {
      "optimizer": self.opt,
      "w": self.w,
      "b": self.b,
      "global_step": self.step,
    }
    return checkpoint.restore(session, path, objects)

  def restore_by_name(self, session, path):
    """Restores a checkpoint by the variables' names."""
    return checkpoint.restore(session, path)

  def restore_by_saver(self, session, path):
    """Restores a checkpoint by a Saver."""
    self.saver.restore(session, path)
    return self.saver.last_report


def ways_of(golden, folder):
  """Yields (program, ways): how each program is restored, in order.

  A way is a name, a method of `Model`, and the path. Ways by object come last:
  they add TensorFlow's save counters to the graph, and no checkpoint by name
  has those variables.
  """
  by_name = ("by_name", Model.restore_by_name, golden.by_name)
  by_object = ("by_object", Model.restore_by_object, golden.by_object)
  fp32 = os.path.join(folder, "model.ckpt")
  own_folder = os.path.dirname(golden.by_name)
  checkpoint.convert(own_folder, fp32, "fp32", overwrite=True)
  ways = [
    by_name,
    ("by_saver", Model.restore_by_saver, golden.by_name),
    ("from_fp32", Model.restore_by_name, fp32),
  ]
  if golden.by_object and golden.is_full:
    name = "by_names_of_objects"
    ways += [(name, Model.restore_by_name, golden.by_object)]
  if golden.by_object:
    ways += [by_object]
  expected = golden.expected
  yield "", expected, ways
  if tf1.control_flow_v2_enabled() and expected.get("use_resource") is False:
    # With resource variables, the program has conds of TensorFlow 2's kind.
    yield "as_resources ", expected | {"use_resource": True}, [by_name]
  if golden.is_full:
    if golden.by_object:
      yield "as_other_kind ", as_other_kind(expected), [by_name, by_object]
    yield "as_other_api ", as_other_api(expected), [by_name]


def run_way(model, session, restore, path, expected):
  """Restores and trains on; returns rows and report, or a traceback."""
  try:
    ops = len(session.graph.get_operations())
    report = restore(model, session, path)
    if restore is not Model.restore_by_object:
      # A MonitoredSession's graph is final, so a restore must not add ops.
      assert len(session.graph.get_operations()) == ops
    rows = [golden_runner.values_of(model, session)]
    rows += golden_runner.train_on(model, session, expected)
  except Exception:  # The test that reads the traceback fails.
    return traceback.format_exc()
  names = ("restored", "bridged", "initialized")
  return rows, report and {name: getattr(report, name) for name in names}


def run(golden, folder):
  """Restores a golden in every way; returns way -> result."""
  results = {}
  for name, expected, ways in ways_of(golden, folder):
    with tf.Graph().as_default(), tf1.Session() as session:
      model = Model(expected)
      for way, restore, path in ways:
        results[name + way] = run_way(model, session, restore, path, expected)
    tfl.disable_mixed_precision_graph_rewrite()
  if golden.is_full and golden.by_object:
    with tf.Graph().as_default(), tf1.Session() as session:
      model = golden_runner.ImportedModel(
        f"{golden.by_name}.meta", golden.expected, checkpoint.import_meta_graph
      )
      results["by_meta_graph"] = run_way(
        model, session, Model.restore_by_saver, golden.by_name, golden.expected
      )
  return results


def main():
  behavior, goldens = sys.argv[1], sys.argv[2:]
  if behavior == "v1":
    tf1.disable_v2_behavior()
  with tempfile.TemporaryDirectory() as folder:
    results = {path: run(Golden(path), folder) for path in goldens}
  json.dump(results, sys.stdout)


if __name__ == "__main__":
  main()
