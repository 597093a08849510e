# SPDX-License-Identifier: Apache-2.0
"""Layouts: the conventions by which checkpoints name their variables.

TensorFlow's Saver and Checkpoint, tf.contrib, Keras and the two kinds of
control flow each name the same variables in their own way. The modules, from
the bottom:

- `names` reads a name; `sources` says where a value comes from.
- `dataflow` and `evidence` find out from graphs what a variable is used for.
- `pairing` pairs variables by proofs; `inventory` hands it names and evidence.
- `matching` (with `match` and `mapping`) restores by name, `by_name` renames
  for another layout.
- `object_bridges` restores by object, `by_object` and `templates` (with
  `object_variables`) convert to object-based layouts.
- `problems` writes the messages.

No module here imports TensorFlow.
"""
