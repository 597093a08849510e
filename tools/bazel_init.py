# SPDX-License-Identifier: Apache-2.0
"""The package, where Bazel has this repository's folder in its place.

Both are called `tf_compat_lossscale`. This is that folder's `__init__.py`.
"""

import os as _os

__path__ = [_os.path.join(_os.path.dirname(__file__), "tf_compat_lossscale")]
with open(_os.path.join(__path__[0], "__init__.py"), encoding="utf-8") as _file:
  exec(compile(_file.read(), _file.name, "exec"))
