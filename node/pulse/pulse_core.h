#pragma once

// Which neighbours live: the side that dials and beats.
//
// Every peer that something is sent to gets a stream of its own and a beat each 250 ms. Only the
// answer to a newer beat is a proof of life, and a lease runs from it: a peer that can be heard but
// cannot hear is lost, as it should be. A stream that breaks is dialled again at once; a dial that
// brings no answer means that nobody is there, so a process that dies is noticed as fast as its
// sockets say so, while a connection that was merely cut costs nothing. A peer whose executor holds
// a job without progress is lost too, however well it answers.
//
// A lost peer is dialled on, and is reported again when it answers. An own sleep (a stopped
// process, a starved thread) is never held against the peers: what was not watched does not count.
//
// Sans-IO: events and `now` in, TakeActions() out. Not thread-safe.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/failure.h"
#include "base/instant.h"
#include "base/route.h"
#include "node/pulse/pulse_words.h"

namespace shardline {

// One dialled stream. Never used twice in a process.
using PulseConnection = Id<struct PulseConnectionTag>;

// To be carried out in the order of the fields.
struct PulseActions {
  struct Dial {
    PulseConnection connection;
    StagePeer peer;
    std::string address;
  };
  struct Beat {
    PulseConnection connection;
    uint64_t number;
    uint64_t echo;
  };
  struct Lost {
    StagePeer peer;
    FailureKind kind;    // kHeartbeatLost, or kDeviceLost for a wedged executor.
    std::string reason;  // "no answer for 1.5 s".
  };

  std::vector<PulseConnection> hang_up;  // Their end is no news any more.
  std::vector<Dial> dial;
  std::vector<Beat> beat;
  std::vector<Lost> lost;
  std::vector<StagePeer> recovered;  // Lost before, and answers again.

  bool empty() const {
    return hang_up.empty() && dial.empty() && beat.empty() && lost.empty() && recovered.empty();
  }
};

class PulseCore {
 public:
  explicit PulseCore(const PulseOptions& options);

  // Something is to be sent to `peer`: beat to it. Its lease begins now. Again with another
  // address: dialled anew there.
  void OnPeerWanted(const StagePeer& peer, const std::string& address, Instant now);
  // Nothing is sent to it any more.
  void OnPeerGone(const StagePeer& peer, Instant now);
  // An answer that breaks the rules is taken as the end of its stream.
  void OnAnswer(PulseConnection connection, const PulseBeat& answer, Instant now);
  // The stream ended, or never came to be.
  void OnStreamBroken(PulseConnection connection, const absl::Status& status, Instant now);
  void OnTick(Instant now);

  bool has_actions() const { return !actions_.empty(); }
  PulseActions TakeActions();
  // When OnTick has work next; infinite future when there is none.
  Instant NextWake() const;

  // The lost ones, by peer.
  std::vector<SilentPeer> Silent(Instant now) const;
  size_t peer_count() const { return peers_.size(); }

 private:
  struct Peer {
    std::string address;
    PulseConnection connection;  // 0: none, until `dial_at`.
    Instant dial_at;
    Instant dialled_at;
    bool answered = false;  // On this connection.
    uint64_t last_number = 0;
    uint64_t last_answer = 0;
    Instant beat_at;      // When the next beat is due.
    Instant proved_at;    // Start of the lease.
    Instant progress_at;  // Last time its executor moved or was idle.
    uint64_t jobs_started = 0;
    uint64_t jobs_done = 0;
    bool lost = false;
    absl::Duration redial_pause;
  };
  using Peers = std::map<StagePeer, Peer>;

  void ForgiveOwnSleep(Instant now);
  void Dial(const StagePeer& id, Peer& peer, Instant now);
  void HangUp(Peer& peer);
  void Lose(const StagePeer& id, Peer& peer, FailureKind kind, std::string reason);
  void Judge(const StagePeer& id, Peer& peer, Instant now);
  Instant NextWakeOf(const Peer& peer) const;
  Peers::iterator PeerOf(PulseConnection connection);

  const PulseOptions options_;

  Peers peers_;
  PulseConnection last_connection_;
  mutable std::optional<Instant> wake_;  // As NextWake said since the last event.
  PulseActions actions_;
};

}  // namespace shardline
