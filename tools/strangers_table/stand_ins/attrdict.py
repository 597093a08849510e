# SPDX-License-Identifier: Apache-2.0
"""A dict with attributes; attrdict itself ends with Python 3.9."""


class AttrDict(dict):
  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self.__dict__ = self
