import collections


def flatten(items):
  out = []
  for item in items:
    if isinstance(item, collections.Iterable):
      out.extend(flatten(item))
    else:
      out.append(item)
  return out
