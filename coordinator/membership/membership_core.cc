#include "coordinator/membership/membership_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/planted_bug.h"
#include "base/version.h"

namespace shardline {
namespace {

constexpr size_t kNameBytesMax = 128;
constexpr size_t kAddressBytesMax = 256;
constexpr size_t kSupersededBootsMax = 8;

std::string Seconds(absl::Duration d) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(d));
}

bool IsNodeName(const std::string& name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

bool HoldsJob(const NodeBeat& beat) {
  return beat.jobs_started > beat.jobs_done && !Planted(PlantedBug::kWedgeGoesUnnoticed);
}

absl::Status Invalid(const std::string& message) {
  return MakeFailure(FailureKind::kInvalidRequest, message);
}

}  // namespace

MembershipCore::MembershipCore(const MembershipOptions& options, Incarnation first)
    : options_(options),
      incarnations_end_(first.value() + options.incarnations_max),
      next_incarnation_(first) {}

absl::Status MembershipCore::CheckHello(JoinStreamId stream, const NodeHello& hello) const {
  if (streams_.contains(stream)) return Invalid("second hello on one stream");
  if (!IsNodeName(hello.node.value())) {
    return Invalid("hello: node_id must be 1 to 128 letters, digits, '-', '_' or '.'");
  }
  if (hello.boot_id.empty() || hello.boot_id.size() > kNameBytesMax) {
    return Invalid("hello: boot_id must have 1 to 128 bytes");
  }
  if (hello.address.empty() || hello.address.size() > kAddressBytesMax) {
    return Invalid("hello: address must have 1 to 256 bytes");
  }
  if (hello.protocol_min > kProtocolVersionMax || hello.protocol_max < kProtocolVersionMin ||
      hello.protocol_min > hello.protocol_max) {
    return MakeFailure(
        FailureDetail{.kind = FailureKind::kIncompatibleRecipe, .node = hello.node},
        absl::StrCat("node speaks protocol ", hello.protocol_min, " to ", hello.protocol_max,
                     ", this coordinator ", kProtocolVersionMin, " to ", kProtocolVersionMax));
  }
  if (absl::Status status = CheckTerm(hello); !status.ok()) return status;
  return CheckClaim(hello);
}

absl::Status MembershipCore::CheckTerm(const NodeHello& hello) const {
  if (hello.term_seen <= options_.term) return absl::OkStatus();
  return MakeFailure(FailureKind::kStaleEpoch,
                     absl::StrCat("node ", hello.node.value(), " has obeyed term ",
                                  hello.term_seen.value(), ", this coordinator has term ",
                                  options_.term.value(), ": its ledger is out of date"));
}

// Another process may hold the id. Only one that never had it may take it over.
absl::Status MembershipCore::CheckClaim(const NodeHello& hello) const {
  auto found = nodes_.find(hello.node);
  if (found == nodes_.end() || !found->second.live) return absl::OkStatus();
  const Node& node = found->second;
  const bool never_had_it = hello.incarnation == Incarnation();
  bool replaced = false;
  if (node.hello.boot_id == hello.boot_id) {
    // The original of a copy, or the other way round: that of an older life has lost.
    const bool elsewhere = hello.address != node.hello.address;
    replaced = elsewhere && !never_had_it && hello.incarnation != node.incarnation;
  } else {
    const auto& older = node.superseded_boots;
    replaced = !never_had_it || std::find(older.begin(), older.end(), hello.boot_id) != older.end();
  }
  if (!replaced) return absl::OkStatus();
  return MakeFailure(FailureDetail{.kind = FailureKind::kStaleEpoch, .node = hello.node},
                     absl::StrCat("incarnation ", hello.incarnation.value(), " of ",
                                  hello.node.value(), " was replaced: incarnation ",
                                  node.incarnation.value(), " is live at ", node.hello.address));
}

void MembershipCore::OnHello(JoinStreamId stream, const NodeHello& hello, Instant now) {
  if (absl::Status status = CheckHello(stream, hello); !status.ok()) {
    // A second hello breaks a stream that may carry a live node.
    if (Node* node = NodeOfStream(stream)) {
      Lose(*node, FailureKind::kWorkerDeath, "sent a second hello", now);
    }
    if (hello.term_seen > std::max(options_.term, superseded_by_.value_or(Term())) &&
        !CheckTerm(hello).ok()) {
      superseded_by_ = hello.term_seen;
      actions_.out_of_date.push_back({.node = hello.node, .term_seen = hello.term_seen});
    }
    RefuseStream(stream, status);
    return;
  }
  auto found = nodes_.find(hello.node);
  if (found == nodes_.end() && !MakeRoom()) {
    RefuseStream(stream,
                 MakeFailure(FailureDetail{.kind = FailureKind::kOverloaded,
                                           .node = hello.node,
                                           .retry_after = absl::Seconds(10)},
                             absl::StrCat("the cluster has its ", options_.nodes_max, " nodes")));
    return;
  }
  Node& node = found == nodes_.end() ? nodes_[hello.node] : found->second;
  const bool same_boot = node.hello.boot_id == hello.boot_id;
  const bool same_place = node.hello.address == hello.address;
  const bool reconnect =
      node.live && same_boot && same_place && hello.incarnation == node.incarnation;
  if (!reconnect && next_incarnation_ == incarnations_end_) {
    RefuseStream(stream,
                 MakeFailure(FailureKind::kOverloaded,
                             "this coordinator has issued all its incarnations; restart it"));
    if (node.incarnation == Incarnation()) nodes_.erase(hello.node);
    return;
  }
  if (reconnect) {
    DropStream(node, MakeFailure(FailureKind::kStaleEpoch, "replaced by a newer stream"));
  } else if (node.live) {
    DropStream(node, MakeFailure(FailureKind::kStaleEpoch,
                                 absl::StrCat("incarnation ", node.incarnation.value(), " of ",
                                              hello.node.value(), " was replaced")));
    const char* reason = "replaced by a new process";
    if (same_boot) reason = same_place ? "joined anew" : "replaced by a copy at another address";
    Lose(node, FailureKind::kWorkerDeath, reason, now);
    // The welcome of the successor would go out with the old attempts unfenced.
    if (Planted(PlantedBug::kSuccessorBeforeFence)) actions_.lost.pop_back();
  }
  if (!reconnect) {
    if (!same_boot && !node.hello.boot_id.empty()) {
      node.superseded_boots.push_back(node.hello.boot_id);
      if (node.superseded_boots.size() > kSupersededBootsMax) {
        node.superseded_boots.erase(node.superseded_boots.begin());
      }
    }
    node.incarnation = next_incarnation_;
    next_incarnation_ = next_incarnation_.Next();
    node.joined_at = now;
    node.echoed_at = now;  // A reconnect goes on with the lease it had.
    node.progress_at = now;
    node.beat = NodeBeat();
    node.lost_reason.clear();
    node.lost_kind = FailureKind::kNone;
  }
  node.hello = hello;
  node.live = true;
  node.stream = stream;
  node.last_number = 0;
  node.last_echo = 0;
  streams_[stream] = hello.node;
  actions_.welcome.push_back({.stream = stream,
                              .node = hello.node,
                              .incarnation = node.incarnation,
                              .protocol = std::min(hello.protocol_max, kProtocolVersionMax),
                              .reconnect = reconnect});
}

void MembershipCore::OnBeat(JoinStreamId stream, const NodeBeat& beat, Instant now) {
  Node* node = NodeOfStream(stream);
  if (node == nullptr) {
    RefuseStream(stream, Invalid("a beat on a stream without a live node"));
    return;
  }
  std::string wrong;
  if (beat.number <= node->last_number) {
    wrong = absl::StrCat("beat ", beat.number, " after beat ", node->last_number);
  } else if (beat.echo > node->last_number) {
    wrong = absl::StrCat("echo of reply ", beat.echo, ", but the last was ", node->last_number);
  } else if (beat.jobs_done > beat.jobs_started) {
    wrong = absl::StrCat(beat.jobs_done, " jobs done of ", beat.jobs_started, " started");
  }
  if (!wrong.empty()) {
    DropStream(*node, Invalid(wrong));
    Lose(*node, FailureKind::kWorkerDeath, absl::StrCat("broke the join protocol (", wrong, ")"),
         now);
    return;
  }
  if (beat.echo > node->last_echo || Planted(PlantedBug::kArrivalCountsAsLife)) {
    node->last_echo = beat.echo;
    node->echoed_at = now;
  }
  if (beat.jobs_done != node->beat.jobs_done || beat.jobs_done == beat.jobs_started) {
    node->progress_at = now;
  }
  node->last_number = beat.number;
  node->beat = beat;
  actions_.reply.push_back({.stream = stream,
                            .node = node->hello.node,
                            .incarnation = node->incarnation,
                            .number = beat.number});
  TakeReports(*node, now);
}

// What a node says of a life that is over, or of itself, is no news.
void MembershipCore::TakeReports(const Node& node, Instant now) {
  const StagePeer from = {node.hello.node, node.incarnation};
  for (const PeerReport& report : node.beat.peers) {
    if (report.peer.node == from.node) continue;
    if (!IsLive(report.peer.node, report.peer.incarnation)) continue;
    const auto [it, is_new] = suspicions_.try_emplace(Link{from, report.peer});
    Suspicion& suspicion = it->second;
    if (is_new || now - suspicion.reported_at >= options_.suspicion_lifetime) {
      actions_.silent.push_back({.from = from, .to = report.peer});
    }
    suspicion = {.reported_at = now, .silent = report.silent};
  }
}

void MembershipCore::OnStreamClosed(JoinStreamId stream, Instant now) {
  if (Node* node = NodeOfStream(stream)) {
    streams_.erase(stream);
    Lose(*node, FailureKind::kWorkerDeath, "stream reset", now);
  }
}

void MembershipCore::OnTick(Instant now) {
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    Node& node = it->second;
    if (!node.live) {
      it = now - node.lost_at >= options_.ghost_lifetime ? nodes_.erase(it) : std::next(it);
      continue;
    }
    const bool busy =
        node.beat.jobs_started > node.beat.jobs_done && !Planted(PlantedBug::kWedgeGoesUnnoticed);
    if (now - node.echoed_at >= options_.lease) {
      DropStream(node, MakeFailure(FailureKind::kHeartbeatLost,
                                   absl::StrCat("no echoed heartbeat for ",
                                                Seconds(now - node.echoed_at))));
      Lose(node, FailureKind::kHeartbeatLost, "heartbeat lost", now);
    } else if (busy && now - node.progress_at >= options_.wedge_timeout) {
      const std::string reason = absl::StrCat("executor wedged in job ", node.beat.jobs_done + 1,
                                              " for ", Seconds(now - node.progress_at));
      DropStream(node, MakeFailure(FailureKind::kDeviceLost, reason));
      Lose(node, FailureKind::kDeviceLost, reason, now);
    }
    ++it;
  }
}

absl::Status MembershipCore::Remove(const NodeId& node) {
  auto found = nodes_.find(node);
  if (found == nodes_.end()) return absl::NotFoundError(absl::StrCat("no node ", node.value()));
  if (found->second.live) {
    return absl::FailedPreconditionError(
        absl::StrCat(node.value(), " is live; stop it before removing it"));
  }
  nodes_.erase(found);
  return absl::OkStatus();
}

// Lists all, which are empty once they are moved from.
MembershipActions MembershipCore::TakeActions() { return std::move(actions_); }

Instant MembershipCore::NextWake() const {
  Instant lost = Instant::InfiniteFuture();
  Instant echoed = Instant::InfiniteFuture();
  Instant progress = Instant::InfiniteFuture();
  for (const auto& [id, node] : nodes_) {
    if (!node.live) {
      lost = std::min(lost, node.lost_at);
      continue;
    }
    echoed = std::min(echoed, node.echoed_at);
    if (HoldsJob(node.beat)) progress = std::min(progress, node.progress_at);
  }
  return std::min(
      {lost + options_.ghost_lifetime, echoed + options_.lease, progress + options_.wedge_timeout});
}

std::vector<NodeView> MembershipCore::List(Instant now) const {
  std::vector<NodeView> views;
  views.reserve(nodes_.size());
  for (const auto& [id, node] : nodes_) views.push_back(ViewOf(node, now));
  return views;
}

std::optional<NodeView> MembershipCore::Find(const NodeId& node, Instant now) const {
  auto found = nodes_.find(node);
  if (found == nodes_.end()) return std::nullopt;
  return ViewOf(found->second, now);
}

bool MembershipCore::IsLive(const NodeId& node, Incarnation incarnation) const {
  auto found = nodes_.find(node);
  return found != nodes_.end() && found->second.live && found->second.incarnation == incarnation;
}

int MembershipCore::live_count() const {
  return static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(),
                                        [](const auto& entry) { return entry.second.live; }));
}

std::vector<SuspectLink> MembershipCore::SuspectLinks(Instant now) const {
  std::vector<SuspectLink> links;
  for (const auto& [link, suspicion] : suspicions_) {
    if (now - suspicion.reported_at >= options_.suspicion_lifetime) continue;
    links.push_back({.from = link.first, .to = link.second, .silent = suspicion.silent});
  }
  return links;
}

std::vector<std::string> MembershipCore::Problems(Instant now) const {
  std::vector<std::string> problems;
  if (superseded_by_) {
    problems.push_back(absl::StrCat(
        "the ledger is out of date: a node has obeyed term ", superseded_by_->value(),
        ", this coordinator has term ", options_.term.value(),
        "; nothing is served; stop it and start it once with --restore ", superseded_by_->value()));
  }
  for (const SuspectLink& link : SuspectLinks(now)) {
    problems.push_back(absl::StrCat("node ", link.from.node.value(), " does not hear node ",
                                    link.to.node.value(), " (silent for ", Seconds(link.silent),
                                    "); check the network between them"));
  }
  return problems;
}

void MembershipCore::Lose(Node& node, FailureKind kind, std::string reason, Instant now) {
  streams_.erase(node.stream);
  const StagePeer self = {node.hello.node, node.incarnation};
  std::erase_if(suspicions_, [&self](const auto& entry) {
    return entry.first.first == self || entry.first.second == self;
  });
  node.live = false;
  node.lost_at = now;
  node.lost_kind = kind;
  node.lost_reason = reason;
  actions_.lost.push_back({.node = node.hello.node,
                           .incarnation = node.incarnation,
                           .kind = kind,
                           .reason = std::move(reason)});
}

void MembershipCore::RefuseStream(JoinStreamId stream, const absl::Status& status) {
  actions_.refuse.push_back({.stream = stream, .status = status});
}

// The stream of a live node ends by our will: its closing is no news any more.
void MembershipCore::DropStream(Node& node, const absl::Status& status) {
  streams_.erase(node.stream);
  FailureDetail detail = FailureDetailOf(status);
  detail.node = node.hello.node;
  RefuseStream(node.stream, WithFailureDetail(status, detail));
}

// A newcomer takes the place of the node that is lost the longest, if there is one.
bool MembershipCore::MakeRoom() {
  if (nodes_.size() < static_cast<size_t>(options_.nodes_max)) return true;
  auto oldest = nodes_.end();
  for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
    if (it->second.live) continue;
    if (oldest == nodes_.end() || it->second.lost_at < oldest->second.lost_at) oldest = it;
  }
  if (oldest == nodes_.end()) return false;
  nodes_.erase(oldest);
  return true;
}

MembershipCore::Node* MembershipCore::NodeOfStream(JoinStreamId stream) {
  auto found = streams_.find(stream);
  if (found == streams_.end()) return nullptr;
  return &nodes_.at(found->second);
}

NodeView MembershipCore::ViewOf(const Node& node, Instant now) const {
  return NodeView{.node = node.hello.node,
                  .live = node.live,
                  .incarnation = node.incarnation,
                  .version = node.hello.version,
                  .address = node.hello.address,
                  .capacity = node.hello.capacity,
                  .load = node.beat,
                  .since_echo = now - node.echoed_at,
                  .age = now - node.joined_at,
                  .lost_for = node.live ? absl::ZeroDuration() : now - node.lost_at,
                  .lost_kind = node.lost_kind,
                  .reason = node.lost_reason};
}

}  // namespace shardline
