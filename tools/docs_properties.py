# SPDX-License-Identifier: Apache-2.0
"""Shows the package's own kinds of properties and types, for `make docs`."""

import dataclasses
from typing import Any

import griffe


class DefaultProperties(griffe.Extension):
  """Turns methods with the decorator `DefaultProperty` into properties."""

  def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
    """Replaces such methods of a class."""
    for name, member in list(cls.members.items()):
      decorators = getattr(member, "decorators", ())
      if any(str(d.value).endswith("DefaultProperty") for d in decorators):
        shown = griffe.Attribute(
          name,
          annotation=member.returns,
          docstring=member.docstring,
          endlineno=member.endlineno,
          lineno=member.lineno,
        )
        shown.labels.add("property")
        cls.set_member(name, shown)


class WrittenTypes(griffe.Extension):
  """Writes out types to which the package gives names, such as `Number`."""

  def on_package(self, *, pkg: griffe.Object, **_: Any) -> None:
    """Changes the annotations of all functions and attributes."""
    for member in pkg.members.values():
      if isinstance(member, griffe.Module | griffe.Class):
        self.on_package(pkg=member)
      elif isinstance(member, griffe.Attribute):
        member.annotation = _write_out(member.annotation, member)
      elif isinstance(member, griffe.Function):
        member.returns = _write_out(member.returns, member)
        for parameter in member.parameters:
          parameter.annotation = _write_out(parameter.annotation, member)


def _write_out(part: Any, member: griffe.Object) -> Any:
  """Returns a part of an annotation with the values of such names."""
  if isinstance(part, list | tuple):
    return type(part)(_write_out(each, member) for each in part)
  if isinstance(part, griffe.ExprName | griffe.ExprAttribute):
    path, named = part.canonical_path, None
    if path.startswith("tf_compat_lossscale."):
      named = member.modules_collection[path]
    if str(getattr(named, "annotation", "")) == "TypeAlias":
      return _write_out(named.value, member)
  elif isinstance(part, griffe.Expr):
    fields = (field.name for field in dataclasses.fields(part) if field.init)
    changes = {name: _write_out(getattr(part, name), member) for name in fields}
    return dataclasses.replace(part, **changes)
  return part
