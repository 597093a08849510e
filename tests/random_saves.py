# SPDX-License-Identifier: Apache-2.0
"""Saves the programs of `random_programs`, and lists what a checkpoint has.

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
  """Saves a program with a number of its own in every variable.

  Args:
    program: The program.
    variant: How it is built.
    api: By which API.
    path: The prefix.
    meta: Whether to write the '.meta', too.
    by_object: Saves by `tf.train.Checkpoint`.
    strip: Leaves out of the '.meta' what attributes are by default.
    graphs: Programs that are built already.

  Returns:
    A pair: the checkpoint's prefix, and identity -> (name, number).
  """
  # `tf.train.Checkpoint` adds a variable, which no other check may see.
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
        checkpoint.save_counter  # noqa: B018 It is made when asked for.
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
  """Makes a checkpoint's files look a minute old.

  A refusal waits while files are so new that a process may still write more.
  """
  folder, prefix = os.path.split(path)
  for name in os.listdir(folder):
    if name.startswith(prefix):
      then = time.time() - 60
      os.utime(os.path.join(folder, name), (then, then))


def write_manifest(path, program, variant, manifest) -> None:
  """Writes what a checkpoint has as JSON."""
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
  """Reads what `write_manifest` wrote: program, variant and manifest."""
  with open(path) as file:
    content = json.load(file)
  manifest = {
    tuple(row["identity"]): (row["name"], row["number"])
    for row in content["variables"]
  }
  return content["program"], content["variant"], manifest
