#pragma once

// Persistent workers for one device thread: fork, run tasks, join.
//
// The caller is one of the workers. Tasks are claimed one by one from a shared counter, so a
// worker that lost its core delays at most the task it holds: nobody waits at a barrier for a
// thread that does not run. After its last task a worker spins for `spin` (tens of microseconds)
// for the next fork and then parks; an idle pool burns nothing. FTZ and DAZ are set in every
// worker, and for the caller while it works (kernels/NUMERICS.md).

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace shardline {

struct ThreadPoolOptions {
  int threads = 0;  // Workers, the caller among them; 0: as many as the process may use.
  absl::Duration spin = absl::Microseconds(30);
};

// CPUs this process may use at once: the least of affinity, cgroup quota (v1 and v2) and what is
// online; at least 1.
int UsableCpuCount();

// The CPUs that this process may run on, in order; what a quota leaves of them is not asked.
std::vector<int> UsableCpus();

class ThreadPool {
 public:
  // Never starts more than UsableCpuCount() workers, whatever `options.threads` says.
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const;

  // Calls body(task) once for each task in [0, task_count), on any worker and in any order;
  // returns when all have returned. Not re-entrant; one calling thread at a time.
  void ParallelFor(int64_t task_count, absl::FunctionRef<void(int64_t task)> body);

  // No fork is due for a while: workers stop spinning and park, and leave their cores to whoever
  // sends the result on. The calling thread of ParallelFor.
  void Rest();

  // A fork is about to come: parked workers wake and spin for it, beside the wake-up of the thread
  // that will fork. Any thread; a fork that does not come costs one short spin.
  void Expect();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardline
