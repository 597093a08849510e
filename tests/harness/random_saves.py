# SPDX-License-Identifier: Apache-2.0
"""Saves the programs of `random_programs`, with a list of their variables.

This module also runs on Python 3.7 and TensorFlow 1.15.
"""

from __future__ import annotations

import json
import os
import time

from random_builder import Graphs
from random_builder import open_session
from random_builder import set_values
from switches import control_flow
import tensorflow as tf

tf1 = tf.compat.v1

SAVED = 1000  # The value of the first variable that is saved.


def save(
  program,
  variant,
  api,
  path,
  meta=True,
  by_object=False,
  strip=False,
  graphs=None,
):
  """Saves a program in which each variable has a different number.

  Args:
    program: The program.
    variant: The variant in which to build the program.
    api: The `Api` to build the program with.
    path: The checkpoint's prefix.
    meta: Whether to write the '.meta' file as well.
    by_object: Whether to save by `tf.train.Checkpoint`.
    strip: Whether the '.meta' file omits attributes with their default value.
    graphs: The `Graphs` to look the program up in.

  Returns:
    The checkpoint's prefix, and the manifest: identity -> (name, number).
  """
  # `tf.train.Checkpoint` adds a variable, which would disturb other checks.
  graphs = graphs if graphs and not by_object else Graphs()
  built = graphs.get(program, variant, api)
  made = built.made
  with control_flow(variant["v2"]), built.graph.as_default():
    manifest = {
      identity: (made[identity].op.name, SAVED + i)
      for i, identity in enumerate(sorted(made))
    }
    with open_session(built.graph) as session:
      set_values(session, [(made[k], n) for k, (_, n) in manifest.items()])
      if by_object:
        checkpoint = tf1.train.Checkpoint(**built.objects)
        checkpoint.save_counter  # noqa: B018 Creates the variable.
        session.run(checkpoint.save_counter.initializer)
        path = checkpoint.save(path, session=session)
      else:
        built.saver().save(
          session,
          path,
          latest_filename=os.path.basename(path) + ".state",
          write_meta_graph=meta,
          write_state=False,
          strip_default_attrs=strip,
        )
  return path, manifest


def make_old(path) -> None:
  """Sets the times of a checkpoint's files to a minute ago.

  If files are new, `restore` waits before it raises an error, because another
  process may still be writing.
  """
  folder, prefix = os.path.split(path)
  for name in os.listdir(folder):
    if name.startswith(prefix):
      then = time.time() - 60
      os.utime(os.path.join(folder, name), (then, then))


def write_manifest(path, program, variant, manifest) -> None:
  """Writes a checkpoint's program, variant and manifest as JSON."""
  content = {
    "program": program,
    "variant": variant,
    "release": tf.__version__,
    "variables": [
      {"identity": list(identity), "name": name, "number": number}
      for identity, (name, number) in sorted(manifest.items())
    ],
  }
  with open(path, "w") as file:
    json.dump(content, file, indent=1, sort_keys=True)
    file.write("\n")


def read_manifest(path):
  """Returns the program, variant and manifest in a file of `write_manifest`."""
  with open(path) as file:
    content = json.load(file)
  manifest = {
    tuple(row["identity"]): (row["name"], row["number"])
    for row in content["variables"]
  }
  return content["program"], content["variant"], manifest
