# SPDX-License-Identifier: Apache-2.0
"""The package's `__init__`, if the repository's folder is in its place."""

load("@rules_python//python:defs.bzl", "py_library")

# In a WORKSPACE, a repository's folder is called as the repository, and so as
# the package. The folder may come ahead of the package on a binary's path, and
# then needs an __init__.py that stands for the package. Under bzlmod the folder
# is called "_main" or "tf_compat_lossscale+", which is no name to import. Labels
# begin with "@@" there.
_REPOSITORY = str(Label("//:BUILD")).split("//")[0]
IS_IN_THE_WAY = (
    not _REPOSITORY.startswith("@@") or _REPOSITORY == "@@tf_compat_lossscale"
)

def bazel_init(name, src, visibility):
    """Makes the library that every module of the package depends on.

    Args:
      name: The name of the library.
      src: The file that becomes `__init__.py`, if one is needed.
      visibility: As for any rule.
    """
    if IS_IN_THE_WAY:
        native.genrule(
            name = name + "_py",
            srcs = [src],
            outs = ["__init__.py"],
            cmd = "cp $< $@",
            visibility = ["//visibility:private"],
        )
    py_library(
        name = name,
        srcs = [name + "_py"] if IS_IN_THE_WAY else [],
        visibility = visibility,
    )
