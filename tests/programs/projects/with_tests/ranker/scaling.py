"""Everything about loss scales, for `from ranker import *`."""
from tensorflow.train.experimental import *

__all__ = ['LossScale', 'FixedLossScale', 'DynamicLossScale', 'PowerOfTwo']


class PowerOfTwo(FixedLossScale):

  def __init__(self, power):
    super(PowerOfTwo, self).__init__(2. ** power)
