# SPDX-License-Identifier: Apache-2.0
"""A rank that trains to the end, from the last checkpoint if there is one.

  horovodrun -np 2 python horovod_fault_worker.py FOLDER STEPS

Rank 0 saves the variables, the loss scale and the number of attempted steps,
restores them, and broadcasts them to the others.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as hvd
import horovod_programs as programs
import horovod_worker
import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

CASE = programs.Case("graph_v1", "outside", steps=40)
_SAVE_EVERY = 4  # Steps.
_SECONDS = 0.03  # Of a step at least, so that a fault can hit it.


def main() -> None:
  """Trains to the end and writes the final state."""
  folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
  hvd.init()
  rank = hvd.rank()
  (folder / f"{rank}.pid").write_text(str(os.getpid()), "utf-8")
  program = programs.Program(
    CASE, lambda: horovod_worker.make_optimizer(CASE), initial=1.0 + rank
  )
  attempted = tf1.Variable(np.int64(0), trainable=False, use_resource=True)
  given = tf1.placeholder(tf.int64, [])
  count = attempted.assign(given)
  saver = tf1.train.Saver(max_to_keep=2)
  hook = hvd.BroadcastGlobalVariablesHook(0)
  hook.begin()
  program.start()
  path = tf1.train.latest_checkpoint(str(folder)) if rank == 0 else None
  if path:
    saver.restore(program.session, path)
  hook.after_create_session(program.session, None)
  begin = int(program.session.run(attempted))
  for step in range(begin, steps):
    program.step(programs.make_feeds(CASE.seed, step, rank))
    done = step + 1
    program.session.run(count, {given: done})
    if rank == 0 and done % _SAVE_EVERY == 0:
      saver.save(program.session, str(folder / "model"), global_step=done)
    (folder / f"{rank}.step").write_text(str(done), "utf-8")
    time.sleep(_SECONDS)
  np.save(folder / f"{rank}.npy", program.state())
  hvd.shutdown()


if __name__ == "__main__":
  main()
