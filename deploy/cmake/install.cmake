# What `cmake --install` puts where.
#   (default)              the daemon and the command-line tool into bin, as their rooms say
#   --component portable   a folder that runs on another machine or in a container: both programs, what tests/gpu/run.sh starts if it
#                          was built, and in lib every shared library they need but glibc, the C++ runtime and CUDA

set(portable_programs ridgelined ridgeline)
foreach(target gpu_kernel_test fused_gpu_test cuda_allocator_test cuda_device_test integration_test allocator_gpu_bench
               attention_gpu_bench decode_gpu_bench fused_gpu_bench
               serving_bench)
  if(TARGET ${target})
    list(APPEND portable_programs ${target})
  endif()
endforeach()

foreach(target ${portable_programs})
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  # RPATH rather than RUNPATH: it holds for the libraries' own libraries too.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()

install(
  TARGETS ${portable_programs}
  RUNTIME_DEPENDENCY_SET portable_libraries
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
          COMPONENT portable
          EXCLUDE_FROM_ALL)
install(
  RUNTIME_DEPENDENCY_SET portable_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util)\\.so" "^lib(stdc\\+\\+|gcc_s)\\.so" "^lib(cu|nvidia-)"
  POST_INCLUDE_REGEXES "^/"
  LIBRARY DESTINATION lib
          COMPONENT portable
          EXCLUDE_FROM_ALL)
