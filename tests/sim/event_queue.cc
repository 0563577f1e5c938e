#include "tests/sim/event_queue.h"

#include <algorithm>
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
  Push({.time = std::max(time, now_), .tie = ties_.Next(), .number = number_++, .slot = slot});
}

void EventQueue::Push(const Key& key) {
  size_t hole = heap_.size();
  heap_.push_back(key);
  while (hole > 0) {
    const size_t parent = (hole - 1) / 4;
    if (!(key < heap_[parent])) break;
    heap_[hole] = heap_[parent];
    hole = parent;
  }
  heap_[hole] = key;
}

EventQueue::Key EventQueue::Pop() {
  const Key first = heap_.front();
  const Key last = heap_.back();
  heap_.pop_back();
  const size_t size = heap_.size();
  for (size_t hole = 0; hole < size;) {
    size_t least = 4 * hole + 1;
    for (size_t child = least + 1; child < std::min(4 * hole + 5, size); ++child) {
      if (heap_[child] < heap_[least]) least = child;
    }
    if (least >= size || !(heap_[least] < last)) {
      heap_[hole] = last;
      break;
    }
    heap_[hole] = heap_[least];
    hole = least;
  }
  return first;
}

bool EventQueue::RunNext() {
  if (heap_.empty()) return false;
  const Key key = Pop();
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
