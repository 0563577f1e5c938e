// Both cores against a small network with random delays, cuts, deaths and sleeps. What must hold:
// no alarm while delays stay within the spec, and no fault that goes unnoticed for longer than its
// bound.

#include <map>
#include <optional>
#include <queue>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "node/pulse/pulse_core.h"
#include "node/pulse/pulse_hearing.h"

namespace shardline {
namespace {

const StagePeer kSelf = {NodeId("a"), Incarnation(1)};
const StagePeer kPeer = {NodeId("b"), Incarnation(1)};

Instant At(int64_t ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

// One sender, one peer, and the wire between them, in steps of a millisecond.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
    core_.OnPeerWanted(kPeer, "b:1", At(0));
    CarryOut();
  }

  uint64_t Pick(uint64_t n) { return random_() % n; }

  void RunUntil(int64_t ms) {
    while (now_ms_ < ms) {
      ++now_ms_;
      Deliver();
      if (asleep) continue;
      if (core_.NextWake() <= At(now_ms_)) {
        core_.OnTick(At(now_ms_));
        CarryOut();
        EXPECT_GT(core_.NextWake(), At(now_ms_)) << "a tick must leave nothing due";
      }
    }
  }

  void Reset() {  // Every connection breaks; the peer lives.
    if (open_.has_value()) Schedule({.connection = *open_, .broken = true});
    open_.reset();
  }

  void Kill() {
    dead = true;
    Reset();
  }

  int64_t now_ms() const { return now_ms_; }
  std::vector<SilentPeer> Silent() const { return core_.Silent(At(now_ms_)); }

  int64_t delay_ms_max = 1;
  bool forth_cut = false;
  bool back_cut = false;
  bool dead = false;
  bool asleep = false;
  std::vector<int64_t> lost_at;
  std::vector<int64_t> recovered_at;

 private:
  struct Event {
    PulseConnection connection;
    bool broken = false;
    bool is_answer = false;
    PulseBeat beat = {};
  };

  int64_t Delay() { return 1 + static_cast<int64_t>(Pick(static_cast<uint64_t>(delay_ms_max))); }

  // In order for one direction, as on a stream.
  void Schedule(const Event& event) {
    int64_t& last = last_delivery_[event.is_answer ? 1 : 0];
    last = std::max(last, now_ms_ + Delay());
    wire_.emplace(std::make_pair(last, sequence_++), event);
  }

  void Deliver() {
    while (!wire_.empty() && wire_.begin()->first.first <= now_ms_) {
      const bool for_sender = wire_.begin()->second.is_answer || wire_.begin()->second.broken;
      if (asleep && for_sender) {  // It waits in the socket.
        held_.push_back(wire_.begin()->second);
        wire_.erase(wire_.begin());
        continue;
      }
      const Event event = wire_.begin()->second;
      wire_.erase(wire_.begin());
      Take(event);
    }
    if (asleep || held_.empty()) return;
    for (const Event& event : std::exchange(held_, {})) Take(event);
  }

  void Take(const Event& event) {
    if (event.broken) {
      core_.OnStreamBroken(event.connection, absl::UnavailableError("reset"), At(now_ms_));
      CarryOut();
    } else if (event.is_answer) {
      if (back_cut) return;
      core_.OnAnswer(event.connection, event.beat, At(now_ms_));
      CarryOut();
    } else if (!dead && !forth_cut && open_ == event.connection) {
      const absl::StatusOr<uint64_t> number =
          hearing_.OnBeat(PulseStreamId(event.connection.value()), kSelf, event.beat, At(now_ms_));
      ASSERT_TRUE(number.ok()) << number.status();
      Schedule({.connection = event.connection, .is_answer = true, .beat = {.number = *number}});
    }
  }

  void CarryOut() {
    const PulseActions actions = core_.TakeActions();
    for (const PulseConnection& connection : actions.hang_up) {
      hearing_.OnStreamClosed(PulseStreamId(connection.value()));
      if (open_ == connection) open_.reset();
    }
    for (const PulseActions::Dial& dial : actions.dial) {
      if (dead) {
        Schedule({.connection = dial.connection, .broken = true});
      } else {
        open_ = dial.connection;
      }
    }
    for (const PulseActions::Beat& beat : actions.beat) {
      if (open_ != beat.connection) continue;
      Schedule({.connection = beat.connection, .beat = {.number = beat.number, .echo = beat.echo}});
    }
    for (size_t i = 0; i < actions.lost.size(); ++i) lost_at.push_back(now_ms_);
    for (size_t i = 0; i < actions.recovered.size(); ++i) recovered_at.push_back(now_ms_);
  }

  std::mt19937_64 random_;
  PulseCore core_{PulseOptions{}};
  PulseHearing hearing_{PulseOptions{}};
  int64_t now_ms_ = 0;
  std::optional<PulseConnection> open_;
  std::map<std::pair<int64_t, uint64_t>, Event> wire_;
  std::vector<Event> held_;
  int64_t last_delivery_[2] = {0, 0};
  uint64_t sequence_ = 0;
};

// A round trip of up to 1.2 s: the answer to the beat after the last proven one still comes in
// time.
TEST(PulsePropertyTest, WhileRoundTripsStayUnderTheLeaseLessABeatThereIsNoAlarm) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int phase = 0; phase < 20; ++phase) {
      world.delay_ms_max = 1 + static_cast<int64_t>(world.Pick(600));
      world.RunUntil(world.now_ms() + 500);
    }
    ASSERT_TRUE(world.lost_at.empty()) << "at " << world.lost_at[0] << " ms";
    ASSERT_TRUE(world.Silent().empty());
  }
}

TEST(PulsePropertyTest, ConnectionsThatAreCutAgainAndAgainAreNoAlarm) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int phase = 0; phase < 20; ++phase) {
      world.delay_ms_max = 1 + static_cast<int64_t>(world.Pick(100));
      world.RunUntil(world.now_ms() + 550 + static_cast<int64_t>(world.Pick(500)));
      world.Reset();
    }
    ASSERT_TRUE(world.lost_at.empty()) << "at " << world.lost_at[0] << " ms";
  }
}

TEST(PulsePropertyTest, ACutOfEitherDirectionIsNoticedWithinTheLeaseAndHealsWithinABeat) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.delay_ms_max = 1 + static_cast<int64_t>(world.Pick(50));
    world.RunUntil(1000 + static_cast<int64_t>(world.Pick(1000)));
    ASSERT_TRUE(world.lost_at.empty());
    const int64_t cut_at = world.now_ms();
    const uint64_t which = world.Pick(3);
    world.forth_cut = which != 1;
    world.back_cut = which != 0;
    world.RunUntil(cut_at + 1500 + 50);
    ASSERT_EQ(world.lost_at.size(), 1U);
    ASSERT_EQ(world.Silent().size(), 1U);
    world.RunUntil(world.now_ms() + static_cast<int64_t>(world.Pick(5000)));
    ASSERT_EQ(world.lost_at.size(), 1U) << "a loss is reported once";
    world.forth_cut = false;
    world.back_cut = false;
    const int64_t healed_at = world.now_ms();
    world.RunUntil(healed_at + 250 + 2 * 50 + 1);
    ASSERT_EQ(world.recovered_at.size(), 1U);
    ASSERT_TRUE(world.Silent().empty());
  }
}

TEST(PulsePropertyTest, ADeathIsNoticedInTwoTripsOfTheWire) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.RunUntil(1000 + static_cast<int64_t>(world.Pick(1000)));
    const int64_t killed_at = world.now_ms();
    world.Kill();
    world.RunUntil(killed_at + 5);
    ASSERT_EQ(world.lost_at.size(), 1U);
    world.dead = false;
    world.RunUntil(killed_at + 1500);
    ASSERT_EQ(world.recovered_at.size(), 1U);
  }
}

// A sleeper has not watched. Whatever it missed, a peer that lives is not lost by it; one that died
// meanwhile is noticed within a lease of waking time.
TEST(PulsePropertyTest, AnOwnSleepOfAnyLengthIsNoAlarm) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    const bool dies = world.Pick(2) == 0;
    for (int nap = 0; nap < 5; ++nap) {
      world.RunUntil(world.now_ms() + 200 + static_cast<int64_t>(world.Pick(1000)));
      world.asleep = true;
      world.RunUntil(world.now_ms() + static_cast<int64_t>(world.Pick(20'000)));
      world.asleep = false;
    }
    world.RunUntil(world.now_ms() + 1000);
    ASSERT_TRUE(world.lost_at.empty()) << "at " << world.lost_at[0] << " ms";
    if (!dies) continue;
    world.asleep = true;
    world.forth_cut = true;
    world.RunUntil(world.now_ms() + static_cast<int64_t>(world.Pick(20'000)));
    world.asleep = false;
    world.RunUntil(world.now_ms() + 1500 + 250 + 50);
    ASSERT_EQ(world.lost_at.size(), 1U);
  }
}

}  // namespace
}  // namespace shardline
