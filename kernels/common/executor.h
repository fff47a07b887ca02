// How CPU kernels use more than one core. The caller owns the threads; kernels only hand out tasks.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ridgeline::kernels {

// A reference to a callable `void(int64_t task_idx, int slot)`; the callable outlives the call that takes it.
class TaskRef {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>)
      TaskRef(const F& callable)  // NOLINT(google-explicit-constructor): a view, made where a call is written
      : object_(&callable),
        invoke_([](const void* object, std::int64_t task_idx, int slot) { (*static_cast<const F*>(object))(task_idx, slot); }) {
  }

  void operator()(std::int64_t task_idx, int slot) const { invoke_(object_, task_idx, slot); }

 private:
  const void* object_;
  void (*invoke_)(const void*, std::int64_t, int);
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Upper bound of concurrently running tasks, at least 1; tasks see slots in [0, num_slots()).
  virtual int num_slots() const = 0;

  // Runs task(i, slot) once for each i in [0, num_tasks) and returns when all have finished. Tasks that run at the same time
  // have different slots, so a slot may index scratch memory. Tasks start in order of i, as threads become free. A task must
  // not call ParallelFor, block or throw.
  virtual void ParallelFor(std::int64_t num_tasks, TaskRef task) = 0;

  // True once the caller of the running kernel wants no result any more: ParallelFor then starts no further task, and a kernel
  // may return early. Its outputs are unspecified after that.
  virtual bool cancelled() const = 0;
};

}  // namespace ridgeline::kernels
