#pragma once

// Virtual time: what happens next, in an order that only the seed decides.
//
// One heap keyed (time, seeded tie-break, number). An event may belong to a process: it is dropped
// when that process has died since, and kept back while it is paused. Nothing here reads a clock.

#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "tests/sim/rng.h"

namespace shardline::sim {

class SimProcess;

// Nanoseconds since the simulation began.
using SimTime = int64_t;
using Action = absl::AnyInvocable<void()>;

inline constexpr SimTime kMicrosecond = 1000;
inline constexpr SimTime kMillisecond = 1000 * kMicrosecond;
inline constexpr SimTime kSecond = 1000 * kMillisecond;

class EventQueue {
 public:
  explicit EventQueue(uint64_t seed) : ties_(seed) {}

  // Runs `action` at `time`, or now if that is past; within the present life of `process`, if one
  // is given.
  void At(SimTime time, SimProcess* process, Action action);

  // Takes the next event. False when there is none.
  bool RunNext();

  SimTime now() const { return now_; }
  uint64_t executed() const { return executed_; }

 private:
  struct Key {
    SimTime time;
    uint64_t tie;
    uint32_t number;  // Events are few enough; two never share a tie and a number.
    uint32_t slot;

    friend bool operator<(const Key& a, const Key& b) {
      if (a.time != b.time) return a.time < b.time;
      if (a.tie != b.tie) return a.tie < b.tie;
      return a.number < b.number;
    }
  };
  struct Event {
    SimProcess* process = nullptr;
    uint32_t life = 0;
    Action action;
  };

  void Push(const Key& key);
  Key Pop();

  Rng ties_;
  SimTime now_ = 0;
  uint64_t executed_ = 0;
  uint32_t number_ = 0;
  std::vector<Key> heap_;  // Each before its four children, which begin at 4 i + 1.
  std::vector<Event> events_;
  std::vector<uint32_t> free_;
};

}  // namespace shardline::sim
