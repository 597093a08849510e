# SPDX-License-Identifier: Apache-2.0
"""A communicator of one process."""

MIN = MAX = SUM = None


class _World:
  def Get_rank(self):
    return 0

  def Get_size(self):
    return 1

  rank, size = 0, 1

  def Barrier(self):
    pass

  barrier = Barrier

  def bcast(self, value, root=0):
    return value

  def allreduce(self, value, op=None):
    return value

  def gather(self, value, root=0):
    return [value]

  def allgather(self, value):
    return [value]

  def scatter(self, values, root=0):
    return values[0]

  def Split(self, *args):
    return self

  def Allreduce(self, source, into, op=None):
    into[...] = source

  def Reduce(self, source, into, op=None, root=0):
    into[...] = source


COMM_WORLD = _World()


def Wtime():
  import time

  return time.time()
