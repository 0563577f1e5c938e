#include "tests/sim/event_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tests/sim/sim_process.h"

namespace shardline::sim {

void EventQueue::At(SimTime time, SimProcess* process, Action action) {
  uint32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<uint32_t>(events_.size());
    SL_CHECK(slot <= kSlotMask);
    events_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Event& event = events_[slot];
  event.process = process;
  event.life = process == nullptr ? 0 : process->life();
  event.action = std::move(action);
  const auto at = static_cast<uint64_t>(std::max(time, now_));
  Push(Key{at} << 64 | (ties_.Next() & ~kSlotMask) | slot);
}

void EventQueue::Push(Key key) {
  size_t hole = heap_.size();
  heap_.push_back(key);
  while (hole > 0) {
    const size_t parent = (hole - 1) / 4;
    if (heap_[parent] <= key) break;
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
  if (size == 0) return first;
  size_t hole = 0;
  size_t child = 1;
  // Which of the four is least is not to be guessed: chosen without a branch.
  for (; child + 4 <= size; child = 4 * hole + 1) {
    const Key* const four = &heap_[child];
    const size_t low = four[1] < four[0] ? 1 : 0;
    const size_t high = four[3] < four[2] ? 3 : 2;
    const size_t least = four[high] < four[low] ? high : low;
    if (last <= four[least]) break;
    heap_[hole] = four[least];
    hole = child + least;
  }
  if (child + 4 > size && child < size) {
    const auto least = std::min_element(heap_.begin() + static_cast<ptrdiff_t>(child), heap_.end());
    if (*least < last) {
      heap_[hole] = *least;
      hole = static_cast<size_t>(least - heap_.begin());
    }
  }
  heap_[hole] = last;
  return first;
}

bool EventQueue::RunNext() {
  if (heap_.empty()) return false;
  const Key key = Pop();
  now_ = TimeOf(key);
  ++executed_;
  Event& next = events_[SlotOf(key)];
  SimProcess* const process = next.process;
  const uint32_t life = next.life;
  Action action = std::move(next.action);
  free_.push_back(static_cast<uint32_t>(SlotOf(key)));
  if (process == nullptr) {
    action();
  } else if (process->life() == life) {
    process->Run(std::move(action));
  }
  return true;
}

}  // namespace shardline::sim
