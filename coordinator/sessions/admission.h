#pragma once

// The waiting queue: who may open a session next, where nodes have no room for all.
//
// A session whose OPEN was refused for want of room (KV pages or slots) waits here, and so does
// whoever comes while others wait. A waiter holds nothing: no page, no slot, no open attempt of a
// stage. Each model has a line of its own. One waiter of a line tries at a time, when something was
// freed, and goes on with what every session does: a route, a grant, an OPEN of each stage; refused
// again it keeps its place.
//
// The order: sessions that ran before, by age; then tenants in turn, each tenant's by age. Who
// needs fewer tokens than what was just refused may pass, but a waiter whose turn it was is passed
// at most `passes_max` times; then nobody passes it, so that what it needs gathers until it fits.
//
// Bounded: beyond `waiting_max` newcomers are refused with a retry_after from the rate observed.
// Deadlines and hang-ups are the sessions' matter: who ends leaves.
//
// Sans-IO, on the coordinator's strand. Used by SessionsCore and its sessions.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/histogram.h"
#include "base/id.h"
#include "base/instant.h"
#include "coordinator/sessions/session_words.h"

namespace shardline {

struct AdmissionOptions {
  int sessions_max = 256;                              // That do not wait, of all models.
  int waiting_max = 256;                               // Of all models.
  int passes_max = 8;                                  // Of one waiter; 0: nobody passes.
  absl::Duration retry = absl::Seconds(1);             // Tried, though nothing is known freed.
  absl::Duration retry_after = absl::Seconds(1);       // Told at least, to who is refused,
  absl::Duration retry_after_max = absl::Seconds(60);  // and at most.
};

struct AdmissionStats {
  uint64_t entered = 0;  // The next two, and those that wait or try.
  uint64_t admitted = 0;
  uint64_t left = 0;     // Ended, or took another way.
  uint64_t refused = 0;  // The queue was full.
  uint64_t tries = 0;    // That ended in one of the next two, or by leaving.
  uint64_t tries_refused = 0;
  uint64_t passes = 0;
  Histogram wait_seconds{SlowBounds()};  // Of the admitted.
};

class AdmissionQueue {
 public:
  struct Waiter {
    RequestId request;  // The older, the lower.
    std::string line;   // The model.
    std::string tenant;
    uint64_t tokens = 0;   // Prompt and answer: what it needs room for.
    bool ahead = false;    // It ran before.
    bool refused = false;  // It comes because it found no room.
  };

  explicit AdmissionQueue(const AdmissionOptions& options) : options_(options) {}

  // Every session, from its coming to its end; a waiter is one too.
  void OnSession() { ++sessions_; }
  void OnSessionOver() { --sessions_; }

  // Whether a newcomer must wait: others do, or all slots are taken.
  bool MustWait(const std::string& line) const;
  // kOverloaded with retry_after when the queue is full and `waiter` has not run before.
  // REQUIRES: it is not in the queue.
  absl::Status Enter(const Waiter& waiter, Instant now);
  // Out of the queue for whatever reason; harmless for who is not in it.
  void Leave(RequestId request);

  // Whose turn has come; from here to one of the next three it tries.
  std::optional<RequestId> NextTurn(Instant now);
  bool Tries(RequestId request) const;
  void OnRefused(RequestId request, Instant now);
  void OnAdmitted(RequestId request, Instant now);
  // (Or Leave.)

  // Sessions of the line have given room back, or its routes have changed.
  void OnFreed(const std::string& line);
  void OnAllFreed();
  void OnTick(Instant now);
  Instant NextWake() const;

  // When there may be room in the queue, as far as its past tells.
  absl::Duration RetryAfter(Instant now) const;
  int waiting() const { return static_cast<int>(line_of_.size()) - trying_; }
  const AdmissionStats& stats() const { return stats_; }

 private:
  struct Entry {
    Waiter waiter;
    Instant since;
    bool had_turn = false;  // And found no room: who goes before it passes it.
    int passes = 0;
  };
  struct Line {
    std::map<RequestId, Entry> entries;  // By age.
    std::string last_tenant;             // Whose turn was last.
    std::optional<RequestId> trying;
    bool freed = false;  // Since `trying` began.
    // This many tokens and more were refused since something was freed; none: nothing was.
    std::optional<uint64_t> refused_tokens;
    Instant retry_at;

    void NoteRefused(uint64_t tokens);
  };

  const Entry* Pick(const Line& line) const;
  void Remove(Line& line, RequestId request);
  Line* LineOf(RequestId request);
  int active() const { return sessions_ - waiting(); }

  const AdmissionOptions options_;

  std::map<std::string, Line> lines_;  // Those with entries.
  absl::flat_hash_map<RequestId, std::string> line_of_;
  std::string last_line_;  // Whose turn was last.
  int sessions_ = 0;
  int trying_ = 0;
  Instant admitted_at_;       // The last one, or when the queue was empty last.
  absl::Duration admission_;  // One takes so long, smoothed; zero: none was seen.
  AdmissionStats stats_;
};

}  // namespace shardline
