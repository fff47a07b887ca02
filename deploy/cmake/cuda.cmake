# Finds the CUDA toolkit, if it is wanted. Sets RIDGELINE_HAVE_CUDA. No toolkit is no error unless RIDGELINE_CUDA=ON.
set(RIDGELINE_HAVE_CUDA OFF)
if(NOT RIDGELINE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 13.0 QUIET)
  set(RIDGELINE_HAVE_CUDA ${CUDAToolkit_FOUND})
endif()
if(RIDGELINE_HAVE_CUDA)
  message(STATUS "CUDA toolkit ${CUDAToolkit_VERSION}")
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  # Machine code for Ampere and Hopper (with what only sm_90a has); PTX for every chip since Ampere.
  set(CMAKE_CUDA_ARCHITECTURES "80;90a-real")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # so that the daemon starts where there is no CUDA
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # which CMake 3.25 does not know of nvcc
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
elseif(RIDGELINE_CUDA STREQUAL "ON")
  message(FATAL_ERROR "RIDGELINE_CUDA=ON, but no CUDA toolkit of version 13.0 or newer was found")
else()
  message(STATUS "Building for the CPU device only (RIDGELINE_CUDA=${RIDGELINE_CUDA})")
endif()
