#pragma once

// Virtual time: what happens next, in an order that only the seed decides.
//
// One heap keyed (time, seeded tie-break). An event may belong to a process: it is dropped
// when that process has died since, and kept back while it is paused. Nothing here reads a clock.

#include <cstddef>
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
  // Time, the upper bits of the tie-break, and the place in `events_`, compared as one number.
  using Key = unsigned __int128;
  static constexpr int kSlotBits = 24;
  static constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;

  static SimTime TimeOf(Key key) { return static_cast<SimTime>(key >> 64); }
  static size_t SlotOf(Key key) { return static_cast<uint64_t>(key) & kSlotMask; }

  struct Event {
    SimProcess* process = nullptr;
    uint32_t life = 0;
    Action action;
  };

  void Push(Key key);
  Key Pop();

  Rng ties_;
  SimTime now_ = 0;
  uint64_t executed_ = 0;
  std::vector<Key> heap_;  // Each before its four children, which begin at 4 i + 1.
  std::vector<Event> events_;
  std::vector<uint32_t> free_;
};

}  // namespace shardline::sim
