#include "tests/sim/event_queue.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tests/sim/sim_process.h"

namespace shardline::sim {

void EventQueue::At(SimTime time, SimProcess* process, Action action) {
  uint32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<uint32_t>(events_.size());
    events_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Event& event = events_[slot];
  event.process = process;
  event.life = process == nullptr ? 0 : process->life();
  event.action = std::move(action);
  heap_.push_back(
      {.time = std::max(time, now_), .tie = ties_.Next(), .number = number_++, .slot = slot});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

bool EventQueue::RunNext() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  const Key key = heap_.back();
  heap_.pop_back();
  now_ = key.time;
  ++executed_;
  Event event = std::move(events_[key.slot]);
  free_.push_back(key.slot);
  if (event.process == nullptr) {
    event.action();
  } else if (event.process->life() == event.life) {
    event.process->Run(std::move(event.action));
  }
  return true;
}

}  // namespace shardline::sim
