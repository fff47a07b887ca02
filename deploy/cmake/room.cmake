# Targets of Ridgeline's rooms. Links between rooms follow the arrows of README.md, "Architecture".

# Warnings and sanitizers, for every target of ours.
add_library(ridgeline_options INTERFACE)
set(ridgeline_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wimplicit-fallthrough)
target_compile_options(ridgeline_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ridgeline_warnings}>")
if(RIDGELINE_WERROR)
  target_compile_options(
    ridgeline_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                                "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--Werror all-warnings>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Locks are annotated: a shared field touched without its mutex does not compile.
  target_compile_options(ridgeline_options INTERFACE -Wthread-safety)
endif()
if(RIDGELINE_SANITIZER)
  target_compile_options(ridgeline_options INTERFACE -fsanitize=${RIDGELINE_SANITIZER} -fno-omit-frame-pointer)
  target_link_options(ridgeline_options INTERFACE -fsanitize=${RIDGELINE_SANITIZER})
  # Compilers spell the question differently; the build knows.
  target_compile_definitions(ridgeline_options INTERFACE RIDGELINE_SANITIZED)
endif()

# ridgeline_room(NAME SOURCES ... HEADERS ... LINKS ...)
# One static library for one room: target ridgeline_NAME, alias ridgeline::NAME. Its headers are verified to compile alone.
function(ridgeline_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINKS" ${ARGN})
  set(target ridgeline_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(ridgeline::${name} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(${target} PUBLIC ${ARG_LINKS} PRIVATE ridgeline_options)
endfunction()

# ridgeline_program(NAME SOURCES ... LINKS ...)
function(ridgeline_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} ridgeline_options)
endfunction()
