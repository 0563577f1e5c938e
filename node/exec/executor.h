#pragma once

// Runs compute jobs on a device: the seam between the loop thread and the device thread.

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "node/stage/compute_job.h"

namespace shardline {

// Counters that only grow: a heartbeat carries them, so that a wedged device with a live socket is
// seen. A job is running while jobs_started > jobs_done.
struct ExecutorProgress {
  uint64_t jobs_submitted = 0;
  uint64_t jobs_started = 0;
  uint64_t jobs_done = 0;
  uint64_t rows_done = 0;
};

class DeviceExecutor {
 public:
  // Called once a job, on the device thread: it posts the result elsewhere and returns.
  using DoneCallback = absl::AnyInvocable<void(ComputeDone done)>;

  virtual ~DeviceExecutor() = default;

  // Queues `job`; jobs run one at a time, in the order submitted. Never blocks. Fails with
  // kOverloaded when the queue is full and with kCancelled after Shutdown; `done` is then dropped
  // without a call. Any thread.
  virtual absl::Status Submit(ComputeJob job, DoneCallback done) = 0;

  // The result goes to another node now, so no job follows at once: helpers of the device stop
  // looking for one and leave their cores to the sending. Only a hint. From a DoneCallback.
  virtual void Rest() = 0;

  // Any thread.
  virtual ExecutorProgress progress() const = 0;

  // Refuses new jobs, answers queued ones with kCancelled, breaks the running one off at its next
  // layer, and returns when the device is idle. Not from a DoneCallback.
  virtual void Shutdown() = 0;
};

}  // namespace shardline
