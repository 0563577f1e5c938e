#pragma once

// Takes events to the strand on a thread of its own.
//
// Whoever posts to an idle strand becomes its runner, for as long as others keep it busy. That is
// right for those who bring the work, and wrong for those who bring beats: a beat must not wait
// behind a shard's events. They hand theirs over here, in order, and go on.

#include <cstddef>
#include <thread>

#include "base/mailbox.h"
#include "base/strand.h"

namespace shardline {

// Any thread.
class Courier {
 public:
  // `strand` outlives the courier. REQUIRES: waiting_max > 0.
  Courier(Strand* strand, size_t waiting_max);
  // Delivers what waits.
  ~Courier();

  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // False, and the task is dropped, when too many wait.
  [[nodiscard]] bool Post(Strand::Task task);

 private:
  Strand* const strand_;
  Mailbox<Strand::Task> waiting_;
  std::thread thread_;  // Last: it sees all of the above.
};

}  // namespace shardline
