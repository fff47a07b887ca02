// What gRPC believes of this machine. It keeps one thread for every two processors for callbacks, and each event has one of
// them wake the next: on 16 processors, 4 threads in place of 8 carried as many decode steps with an eighth less of the
// daemon's CPU time, and one client's step took 180 µs rather than 237 (tests/gpu/RESULTS.md). gRPC 1.51 has no setting for
// their number. These are functions of its interface, and a program's own definition goes before a shared library's.
#include <grpc/support/cpu.h>
#include <sched.h>

#include <algorithm>
#include <thread>

namespace {

constexpr unsigned kMostProcessors = 8;

}  // namespace

// Asked for at every step of a call, and the system reads a file to tell.
extern "C" unsigned gpr_cpu_num_cores() {
  static const unsigned num_cores = std::clamp(std::thread::hardware_concurrency(), 1u, kMostProcessors);
  return num_cores;
}

// Below the number above: gRPC counts by processor.
extern "C" unsigned gpr_cpu_current_cpu() {
  const int cpu = sched_getcpu();
  return cpu < 0 ? 0 : static_cast<unsigned>(cpu) % gpr_cpu_num_cores();
}
