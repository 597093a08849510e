"""Restores what old releases saved into models that are not quite the same.

Runs as a program of its own, since TensorFlow 2's behaviour is switched for a
whole process:

  python checkpoint_runner.py (v1|v2) GOLDEN_DIR... > results.json

For each golden and each way the result is a list of rows, as in the golden's
expected.json, and what the report said; or a traceback.
"""

import os
import tempfile

import golden_runner
import tensorflow as tf

from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1


def report_of(report):
  return {"bridged": report.bridged, "initialized": report.initialized}


def by_name(golden, expected):
  model = golden_runner.Model(expected)
  path = tf1.train.latest_checkpoint(golden)
  with tf1.Session() as session:
    tf1.get_default_graph().finalize()
    report = checkpoint.restore(session, path)
    return golden_runner.train_on(model, session, expected), report_of(report)


def as_resources(golden, expected):
  """Conds are of TensorFlow 2's kind then, in its behavior."""
  return by_name(golden, expected | {"use_resource": True})


def by_saver(golden, expected):
  model = golden_runner.Model(expected)
  saver = checkpoint.Saver()
  with tf1.Session() as session:
    tf1.get_default_graph().finalize()
    saver.restore(session, tf1.train.latest_checkpoint(golden))
    return golden_runner.train_on(model, session, expected), None


def by_names_of_objects(golden, expected):
  model = golden_runner.Model(expected)
  with tf1.Session() as session:
    report = checkpoint.restore(session, object_path(golden, expected))
    return golden_runner.train_on(model, session, expected), report_of(report)


def by_object(golden, expected):
  model = golden_runner.Model(expected)
  with tf1.Session() as session:
    report = checkpoint.restore(
      session, object_path(golden, expected), objects(model)
    )
    return golden_runner.train_on(model, session, expected), report_of(report)


def from_fp32(golden, expected):
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.ckpt")
    checkpoint.convert(golden, path, "fp32")
    model = golden_runner.Model(expected)
    with tf1.Session() as session:
      report = checkpoint.restore(session, path)
      rows = golden_runner.train_on(model, session, expected)
      return rows, report_of(report)


def from_fp32_object(golden, expected):
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.ckpt")
    checkpoint.convert(object_path(golden, expected), path, "fp32")
    model = golden_runner.Model(expected)
    with tf1.Session() as session:
      report = checkpoint.restore(session, path, objects(model))
      rows = golden_runner.train_on(model, session, expected)
      return rows, report_of(report)


def as_other_kind(golden, expected):
  dynamic = expected["kind"] == "fixed"
  other = {"kind": "dynamic" if dynamic else "fixed", "increment_period": 3}
  return by_name(golden, expected | other)


def as_other_kind_object(golden, expected):
  dynamic = expected["kind"] == "fixed"
  other = {"kind": "dynamic" if dynamic else "fixed", "increment_period": 3}
  return by_object(golden, expected | other)


def as_other_api(golden, expected):
  compat = expected["api"].startswith("compat")
  other = {
    "api": "contrib" if compat else "compat.v1",
    "increment_period": 4,
  }
  if expected["kind"] != "fixed":
    other["kind"] = "exponential" if compat else "dynamic"
  return by_name(golden, expected | other)


def object_path(golden, expected):
  return os.path.join(golden, expected["object_path"])


def objects(model):
  return {
    "optimizer": model.opt,
    "w": model.w,
    "b": model.b,
    "global_step": model.step,
  }


def by_meta_graph(golden, expected):
  path = tf1.train.latest_checkpoint(golden)
  model = golden_runner.ImportedModel(
    path + ".meta", expected, checkpoint.import_meta_graph
  )
  with tf1.Session() as session:
    model.saver.restore(session, path)
    return golden_runner.train_on(model, session, expected), None


# What every golden goes through, and what those of two releases do besides.
_ALWAYS = (by_name, as_resources, by_object, from_fp32, as_other_kind)
_BESIDES = (
  *(by_saver, by_names_of_objects, from_fp32_object, as_other_kind_object),
  *(as_other_api, by_meta_graph),
)


def ways(golden):
  """The ways to restore a golden, by its path."""
  release, case = golden.split("/")[-2:]
  if case.startswith("contrib"):
    return (by_name, by_saver, from_fp32, as_other_api)
  some = release in ("tf-1.15.5", "tf-2.8.4")
  return _ALWAYS + (_BESIDES if some else ())


if __name__ == "__main__":
  golden_runner.main(ways)
