#pragma once

// Who is alive: nodes by their stable id, each with one live incarnation at most.
//
// A node joins over one stream. Its life is proved by echoes only: the coordinator answers every
// beat with the beat's number, the node sends the last answer it saw with its next beat, and a
// lease runs from the last beat that brought a newer echo. A node that can be heard but cannot
// hear is therefore lost, as it should be. A broken stream loses the node at once; an executor
// that holds a job and makes no progress loses it too, however well its socket beats.
//
// Losing means: the incarnation is dead for ever, and whatever is bound to it fails. A node that
// comes back gets a fresh incarnation, and the loss of the older one is always reported first.
//
// Of two processes that claim one id the newest registration wins, a copy of a running process
// included: a reconnect comes from the same boot, life and address, and a copy has its own address.
// The loser is refused as stale, naming its node, and ends.
//
// A node that has obeyed a higher term than ours proves that our ledger is an old one. It is
// refused as stale, naming no node, and the coordinator must stop serving.
//
// Sans-IO: events and `now` in, TakeActions() out, on the coordinator's strand. Knows nothing of
// models, shards or sessions.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "coordinator/membership/node_facts.h"

namespace shardline {

struct MembershipOptions {
  absl::Duration heartbeat = absl::Milliseconds(250);
  absl::Duration lease = absl::Milliseconds(1500);    // From the last echoed beat.
  absl::Duration wedge_timeout = absl::Seconds(5);    // A job that makes no progress.
  absl::Duration ghost_lifetime = absl::Minutes(10);  // How long a lost node stays listed.
  int nodes_max = 256;                                // Live and lost together.
  uint64_t incarnations_max = 1000000;  // Issued by one coordinator: the width of its block.
  Term term;                            // The coordinator's.
  absl::Duration suspicion_lifetime = absl::Seconds(10);  // Of a link, after its last report.
};

// To be carried out in the order of the fields. In particular everything bound to a lost
// incarnation is fenced before the welcome of its successor is sent.
struct MembershipActions {
  struct Lost {
    NodeId node;
    Incarnation incarnation;
    FailureKind kind;    // kHeartbeatLost, kWorkerDeath or kDeviceLost.
    std::string reason;  // "heartbeat lost 1.5 s ago".
  };
  struct Refuse {
    JoinStreamId stream;
    absl::Status status;  // Sent as the refusal; then the stream ends.
  };
  struct Welcome {
    JoinStreamId stream;
    NodeId node;
    Incarnation incarnation;
    uint32_t protocol;
    bool reconnect;  // The node keeps the incarnation it had; nothing of it was lost.
  };
  struct Reply {
    JoinStreamId stream;
    NodeId node;
    Incarnation incarnation;
    uint64_t number;
  };
  // `from` has begun to report that it does not hear `to`. Both live.
  struct PeerSilent {
    StagePeer from;
    StagePeer to;
  };
  // Once for each higher term.
  struct LedgerOutOfDate {
    NodeId node;
    Term term_seen;
  };

  std::vector<LedgerOutOfDate> out_of_date;  // Nothing more is served from here on.
  std::vector<Lost> lost;
  std::vector<Refuse> refuse;
  std::vector<Welcome> welcome;  // The node is ready from here on.
  std::vector<Reply> reply;
  std::vector<PeerSilent> silent;

  bool empty() const {
    return out_of_date.empty() && lost.empty() && refuse.empty() && welcome.empty() &&
           reply.empty() && silent.empty();
  }
};

class MembershipCore {
 public:
  // Issues incarnations from `first` on. They come from Store::NextIncarnationBlock, so that no
  // number is ever used twice, over restarts of the coordinator too.
  MembershipCore(const MembershipOptions& options, Incarnation first);

  // The first message of a stream: answered by a welcome or a refusal. A new boot id is a
  // restart, or a second process with the same id. The loser is refused as stale, and again when
  // it comes back with the incarnation it no longer has.
  void OnHello(JoinStreamId stream, const NodeHello& hello, Instant now);
  // Answered by a reply, or by a refusal when the beat breaks the rules.
  void OnBeat(JoinStreamId stream, const NodeBeat& beat, Instant now);
  void OnStreamClosed(JoinStreamId stream, Instant now);
  void OnTick(Instant now);

  // Takes a lost node off the list. NotFound for an unknown node, FailedPrecondition for a live
  // one.
  absl::Status Remove(const NodeId& node);

  bool has_actions() const { return !actions_.empty(); }
  MembershipActions TakeActions();
  // When OnTick has work next; infinite future when there is none.
  Instant NextWake() const;

  // By node id. Lost nodes are listed until they expire, with the reason.
  std::vector<NodeView> List(Instant now) const;
  std::optional<NodeView> Find(const NodeId& node, Instant now) const;
  // True if `incarnation` is the live one of `node`.
  bool IsLive(const NodeId& node, Incarnation incarnation) const;
  int live_count() const;

  // Links between live nodes that were reported silent within the suspicion's lifetime, in order.
  // A route does well to avoid them.
  std::vector<SuspectLink> SuspectLinks(Instant now) const;
  // The highest term a node has obeyed, if it is above ours: this ledger must not be served from.
  std::optional<Term> superseded_by() const { return superseded_by_; }
  // One line each, for people, with the way out.
  std::vector<std::string> Problems(Instant now) const;

 private:
  struct Suspicion {
    Instant reported_at;
    absl::Duration silent;
  };
  using Link = std::pair<StagePeer, StagePeer>;

  struct Node {
    NodeHello hello;
    std::vector<std::string> superseded_boots;  // Processes that lost this id; newest last.
    Incarnation incarnation;
    bool live = false;
    JoinStreamId stream;       // Of a live node.
    Instant joined_at;         // This incarnation.
    Instant echoed_at;         // Start of the lease.
    uint64_t last_number = 0;  // Of the last beat taken, hence of the last reply.
    uint64_t last_echo = 0;
    NodeBeat beat;        // The last one, for its load.
    Instant progress_at;  // Last time the executor moved or was idle.
    Instant lost_at;
    FailureKind lost_kind = FailureKind::kNone;
    std::string lost_reason;
  };

  void Lose(Node& node, FailureKind kind, std::string reason, Instant now);
  void TakeReports(const Node& node, Instant now);
  void RefuseStream(JoinStreamId stream, const absl::Status& status);
  void DropStream(Node& node, const absl::Status& status);
  absl::Status CheckHello(JoinStreamId stream, const NodeHello& hello) const;
  absl::Status CheckTerm(const NodeHello& hello) const;
  absl::Status CheckClaim(const NodeHello& hello) const;
  bool MakeRoom();
  Node* NodeOfStream(JoinStreamId stream);
  NodeView ViewOf(const Node& node, Instant now) const;

  const MembershipOptions options_;
  const Incarnation incarnations_end_;

  Incarnation next_incarnation_;
  std::map<NodeId, Node> nodes_;
  absl::flat_hash_map<JoinStreamId, NodeId> streams_;  // Of live nodes.
  std::map<Link, Suspicion> suspicions_;               // Of live ends only.
  std::optional<Term> superseded_by_;
  MembershipActions actions_;
};

}  // namespace shardline
