# SPDX-License-Identifier: Apache-2.0
# A toolchain file by which CMake builds of Horovod what TensorFlow 2.12 loads, in
# a third of the CPU time: without debug information, of Gloo one copy of two, and
# four source files at a time, except for those that cannot share a unit.
set(CMAKE_CXX_FLAGS_DEBUG "" CACHE STRING "")
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 4)

function(choose_what_is_built)
  if(TARGET compatible17_gloo)
    set_target_properties(gloo PROPERTIES EXCLUDE_FROM_ALL ON)
    set_source_files_properties(
      ${CMAKE_SOURCE_DIR}/horovod/tensorflow/mpi_ops.cc
      ${CMAKE_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc
      TARGET_DIRECTORY tensorflow
      PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()
cmake_language(DEFER CALL choose_what_is_built)
