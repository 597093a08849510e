# SPDX-License-Identifier: Apache-2.0
"""Layouts: the conventions by which checkpoints name their variables.

TensorFlow's Saver and Checkpoint, tf.contrib, Keras and the two kinds of
control flow each name the same variables in their own way. The modules, from
the bottom:

- `names` reads a name; `scale_bridges` converts loss scales between APIs.
- `dataflow` and `evidence` read the uses of variables from graphs.
- `pairing` pairs variables by proofs; `inventory` hands it names and evidence.
- `matching` (with `match`) finds the values of variables by name; `by_name`
  renames variables for another layout.
- `object_bridges` fits an object graph to a program's objects; `by_object` and
  `templates` convert to object-based layouts.
- `problems` writes the messages.

No module here imports TensorFlow.
"""
