#pragma once

// A shell of SessionsCore that answers when the dice say so: late, doubled, or never; a ledger,
// nodes and heads of its own stand behind it. It remembers what it saw and says what was wrong
// first.

#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/sessions/sessions_core.h"

namespace shardline::testing {

class ShakyShell {
 public:
  explicit ShakyShell(uint64_t seed) : random_(seed) {}

  void Step();
  // Everything that is out gets its answer, and time passes.
  void WindDown();

  // The first rule that was broken; empty: none.
  const std::string& problem() const { return problem_; }

  // What the dice have brought about: each must happen now and then.
  struct Seen {
    int completed = 0;
    int completed_later = 0;  // By a second or third attempt.
    int poisoned = 0;
    int taken_over = 0;
    int replayed = 0;
    int unverified = 0;
    int paced = 0;
    int let_in = 0;  // From the queue.
  };
  const Seen& seen() const { return seen_; }

 private:
  // One call of a client.
  struct Client {
    Instant end_by;
    uint32_t next = 0;  // The index of the token it needs.
    bool started = false;
    bool over = false;
  };
  // A session as the ledger and its nodes know it.
  struct Session {
    RequestId request;
    uint64_t epoch = 0;
    std::optional<AttemptKey> open;  // In the ledger.
    std::optional<EndRecord> outcome;
    Instant deadline;
    uint32_t delivered = 0;
    std::set<StagePeer> blamed;
    int opened_attempts = 0;  // Less those that found no room.
    int deaths = 0;
    uint64_t digest = 0;
  };
  struct Attempt {
    std::vector<StagePeer> opened;
    std::map<size_t, int> fenced;  // Stage to how often, less failed answers.
    bool ran = false;
    bool doubted = false;    // A connection was lost: what comes after that decides nothing.
    uint32_t head_next = 0;  // The token its head sends next.
    bool finishing = false;
    std::optional<SessionOutcome> record;
  };

  uint64_t Pick(uint64_t n) { return random_() % n; }
  Instant Now() const { return Instant::FromOrigin(absl::Milliseconds(ms_)); }
  template <typename T>
  T TakeAny(std::vector<T>& from);
  AttemptKey AnyAttempt();
  void Require(bool holds, const std::string& rule);
  NodeId Node(size_t i) const { return NodeId("node-" + std::to_string(i)); }

  void Generate();
  void Reattach();
  void AddClient(RequestId id, uint32_t held);
  void AnswerRoute();
  void AnswerGrant();
  void AnswerOpen();
  static uint32_t CachedAt(const AttemptKey& key, size_t stage);
  void SendToken();
  void EndRun();
  void AnswerFinish(bool refuse);
  void AnswerFence();
  void LoseNode();
  Admitted Admit(const SessionsActions::Grant& grant);
  void GrantNext(Session& session, Admitted& admitted);
  absl::Status Named(FailureKind kind, const AttemptKey& key);

  void Check();
  void CarryOut(const SessionsActions& actions);
  void TakeFence(const SessionsActions::Fence& fence);
  void TakeOpen(const SessionsActions::Open& open);
  void TakeRebind(const SessionsActions::Rebind& rebind);
  void TakeRun(const SessionsActions::Run& run);
  void TakeDeliver(const SessionsActions::Deliver& deliver);
  void TakeFinish(const SessionsActions::Finish& finish);
  void TakeEnd(const SessionsActions::End& end);

  static constexpr size_t kNodes = 5;

  std::mt19937_64 random_;
  SessionsCore core_{
      SessionsOptions{.admission = {.sessions_max = 6, .waiting_max = 4, .passes_max = 2},
                      .restarts = {.burst = 2, .per_second = 2, .per_session = 0.1}}};
  int64_t ms_ = 0;
  uint64_t next_request_ = 1;
  uint64_t next_session_ = 1;
  uint64_t lives_[kNodes] = {1, 1, 1, 1, 1};
  std::string problem_;
  Seen seen_;

  std::map<RequestId, Client> clients_;
  std::map<RequestId, SessionRequest> requests_;
  std::map<SessionId, Session> sessions_;
  std::map<AttemptKey, Attempt> attempts_;
  std::vector<AttemptKey> granted_;
  std::map<std::string, SessionId> keys_;
  std::set<RequestId> forgotten_;
  std::set<RequestId> refused_;  // A question of theirs for a route.

  // Out, and not answered.
  std::vector<SessionsActions::FindRoute> routes_;
  std::vector<SessionsActions::Grant> grants_;
  std::vector<std::pair<AttemptKey, size_t>> opens_;
  std::vector<std::pair<AttemptKey, size_t>> fences_;
  std::vector<SessionsActions::Finish> finishes_;
};

}  // namespace shardline::testing
