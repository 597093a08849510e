# SPDX-License-Identifier: Apache-2.0
"""Shows the package's own kind of property as a property, for `make docs`."""

from typing import Any

import griffe


class DefaultProperties(griffe.Extension):
  """Turns methods with the decorator `DefaultProperty` into properties."""

  def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
    """Replaces such methods of a class."""
    for name, member in list(cls.members.items()):
      if not isinstance(member, griffe.Function):
        continue
      decorators = [str(decorator.value) for decorator in member.decorators]
      if any(text.endswith("DefaultProperty") for text in decorators):
        shown = griffe.Attribute(
          name,
          annotation=member.returns,
          docstring=member.docstring,
          endlineno=member.endlineno,
          lineno=member.lineno,
        )
        shown.labels.add("property")
        cls.set_member(name, shown)
