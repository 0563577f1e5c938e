#include "tests/coordinator/sessions/shaky_shell.h"

#include <algorithm>

#include "base/version.h"

namespace shardline::testing {
namespace {

constexpr int64_t kBudgetMs = 5000;
constexpr int64_t kGraceMs = 500;
constexpr uint32_t kPromptTokens = 40;
constexpr uint32_t kNewTokens = 4;

// The one right token at each place of a session's answer.
int32_t TokenAt(uint32_t index) { return static_cast<int32_t>(700 + index); }

std::vector<int32_t> Tokens(uint32_t count) {
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(TokenAt(i));
  return tokens;
}

std::string Text(const AttemptKey& key) {
  return std::to_string(key.session.value()) + "/" + std::to_string(key.epoch.value());
}

}  // namespace

template <typename T>
T ShakyShell::TakeAny(std::vector<T>& from) {
  const size_t i = Pick(from.size());
  T item = from[i];
  from.erase(from.begin() + static_cast<ptrdiff_t>(i));
  return item;
}

AttemptKey ShakyShell::AnyAttempt() {
  return granted_[granted_.size() - 1 - Pick(std::min<size_t>(granted_.size(), 8))];
}

void ShakyShell::Require(bool holds, const std::string& rule) {
  if (!holds && problem_.empty()) problem_ = rule + " at " + std::to_string(ms_) + " ms";
}

void ShakyShell::Step() {
  ms_ += static_cast<int64_t>(Pick(60));
  switch (Pick(18)) {
    case 0:
    case 1:
      Pick(4) == 0 ? Reattach() : Generate();
      break;
    case 2:
    case 3:
      AnswerRoute();
      break;
    case 4:
    case 5:
      AnswerGrant();
      break;
    case 6:
    case 7:
    case 8:
    case 9:
      AnswerOpen();
      break;
    case 10:
    case 11:
    case 12:
      SendToken();
      break;
    case 13:
      EndRun();
      break;
    case 14:
      AnswerFinish(/*refuse=*/Pick(4) == 0);
      AnswerFence();
      break;
    case 15:
      if (next_request_ > 1) core_.OnCancel(RequestId(1 + Pick(next_request_ - 1)), Now());
      break;
    case 16:
      if (Pick(3) == 0) LoseNode();
      if (Pick(3) == 0) core_.OnRoutesChanged(Now());
      if (Pick(10) == 0) core_.OnNodeDrained(Node(Pick(kNodes)), "drained", Now());
      break;
    default:
      if (Pick(3) == 0) core_.OnNodeReady(Node(Pick(kNodes)), Incarnation(1), Now());
      core_.OnTick(Now());
  }
  Check();
}

void ShakyShell::WindDown() {
  for (int i = 0; i < 3; ++i) {
    ms_ += kBudgetMs + kGraceMs;
    core_.OnTick(Now());
    Check();
    while (!routes_.empty()) AnswerRoute();
    Check();
    while (!grants_.empty()) AnswerGrant();
    Check();
    while (!finishes_.empty()) AnswerFinish(false);
    Check();
    while (!fences_.empty()) AnswerFence();
    Check();
  }
  Require(core_.idle(), "nothing is kept at the end");
  Require(forgotten_.size() == requests_.size(), "every request is forgotten");
  Require(core_.running_count() == 0, "nobody waits at the end");
  Require(core_.NextWake() == Instant::InfiniteFuture(), "nothing wakes an idle core");
  for (const auto& [id, client] : clients_) Require(client.over, "every call has its end");
  for (const auto& [id, session] : sessions_) {
    Require(!session.open, "no attempt stays open in the ledger");
    Require(session.outcome.has_value(), "every session has an outcome");
  }
  for (const auto& [key, attempt] : attempts_) {
    Require(attempt.record.has_value(), "every attempt has its record: " + Text(key));
    Require(attempt.fenced.size() == attempt.opened.size(),
            "every stage that was sent an open is sent a fence: " + Text(key));
  }
  const SessionsStats& stats = core_.stats();
  Require(stats.started == stats.completed + stats.failed + stats.cancelled + stats.expired +
                               stats.refused + stats.attached + stats.replayed,
          "the counters add up");
  Require(stats.fences_sent == stats.fences_answered + stats.fences_failed, "fences add up");
  seen_.poisoned = static_cast<int>(stats.poisoned);
  seen_.replayed = static_cast<int>(stats.replayed);
  seen_.paced = static_cast<int>(stats.restarts_paced);
  const AdmissionStats& queue = core_.queue().stats();
  seen_.let_in = static_cast<int>(queue.admitted);
  Require(queue.entered == queue.admitted + queue.left, "whoever waited went on or left");
  Require(core_.queue().waiting() == 0, "nobody waits at the end");
}

void ShakyShell::AddClient(RequestId id, uint32_t held) {
  clients_[id] = {.end_by = Now() + absl::Milliseconds(kBudgetMs + kGraceMs), .next = held};
}

void ShakyShell::Generate() {
  SessionRequest request;
  request.request = RequestId(next_request_++);
  request.model = "m";
  request.prompt_tokens = kPromptTokens;
  request.new_tokens_max = kNewTokens;
  request.budget = absl::Milliseconds(kBudgetMs);
  request.identity.digest = 7;
  if (Pick(3) == 0) request.identity.key = "k" + std::to_string(Pick(5));
  requests_[request.request] = request;
  AddClient(request.request, 0);
  core_.OnGenerate(request, Now());
}

// A client that has some of a session's tokens comes back.
void ShakyShell::Reattach() {
  if (granted_.empty()) return;
  const SessionId id = AnyAttempt().session;
  const uint32_t held = static_cast<uint32_t>(Pick(sessions_[id].delivered + 1));
  SessionRequest request = requests_[sessions_[id].request];
  request.request = RequestId(next_request_++);
  request.identity.session = id;
  request.tokens_held = Tokens(held);
  requests_[request.request] = request;
  AddClient(request.request, held);
  core_.OnGenerate(request, Now());
}

void ShakyShell::AnswerRoute() {
  if (routes_.empty()) return;
  const SessionsActions::FindRoute asked = TakeAny(routes_);
  if (Pick(6) == 0) {
    refused_.insert(asked.request);
    core_.OnRoute(asked.request, MakeFailure(FailureKind::kOverloaded, "loading"), Now());
    return;
  }
  std::vector<size_t> nodes;
  for (size_t i = 0; i < kNodes; ++i) {
    const StagePeer life{Node(i), Incarnation(lives_[i])};
    const auto& avoid = asked.avoid.nodes;
    if (std::find(avoid.begin(), avoid.end(), life) == avoid.end()) nodes.push_back(i);
  }
  std::shuffle(nodes.begin(), nodes.end(), random_);
  nodes.resize(std::min<size_t>(nodes.size(), 1 + Pick(3)));
  Route route;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto l = static_cast<int32_t>(i);
    route.stages.push_back({Node(nodes[i]), Incarnation(lives_[nodes[i]]), "", {l, l + 1}});
  }
  core_.OnRoute(asked.request, route, Now());
  if (Pick(4) == 0) core_.OnRoute(asked.request, route, Now());
}

void ShakyShell::AnswerGrant() {
  if (grants_.empty()) return;
  const SessionsActions::Grant grant = TakeAny(grants_);
  if (Pick(8) == 0) {
    core_.OnGranted(grant.request, MakeFailure(FailureKind::kOverloaded, "disk full"), Now());
    return;
  }
  const Admitted admitted = Admit(grant);
  core_.OnGranted(grant.request, admitted, Now());
  if (Pick(4) == 0) core_.OnGranted(grant.request, admitted, Now());
}

// The ledger's transaction.
Admitted ShakyShell::Admit(const SessionsActions::Grant& grant) {
  Admitted admitted;
  std::optional<SessionId> id = grant.session;
  if (!id) id = grant.identity.session;
  if (!id && keys_.contains(grant.identity.key)) id = keys_[grant.identity.key];
  admitted.known = id.has_value();
  if (!id) {
    id = SessionId(next_session_++);
    sessions_[*id].request = grant.request;
    sessions_[*id].deadline = Now() + grant.budget;
    if (!grant.identity.key.empty()) keys_[grant.identity.key] = *id;
  }
  Session& session = sessions_[*id];
  admitted.key = {*id, Epoch(session.epoch)};
  if (session.outcome) {
    admitted.outcome = session.outcome;
    if (!requests_[session.request].identity.key.empty() &&
        session.outcome->outcome == SessionOutcome::kCompleted) {
      admitted.tokens = Tokens(session.outcome->tokens);
    }
    return admitted;
  }
  if (session.open && !grant.session) return admitted;  // It runs.
  if (session.open) {
    Require(grant.previous.has_value(), "a grant brings the record of the attempt before");
    Attempt& before = attempts_[*session.open];
    before.record = grant.previous->outcome;
    const FailureKind kind = grant.previous->kind;
    const bool no_room = kind == FailureKind::kKvExhausted || kind == FailureKind::kOverloaded;
    if (no_room && !before.opened.empty()) --session.opened_attempts;
    if (grant.previous->outcome == SessionOutcome::kUnverified) ++seen_.unverified;
  }
  GrantNext(session, admitted);
  return admitted;
}

void ShakyShell::GrantNext(Session& session, Admitted& admitted) {
  admitted.granted = true;
  admitted.key.epoch = Epoch(++session.epoch);
  session.open = admitted.key;
  attempts_[admitted.key] = Attempt();
  granted_.push_back(admitted.key);
}

// A failure that may name a node of the attempt; the shell remembers whom a restart must leave.
absl::Status ShakyShell::Named(FailureKind kind, const AttemptKey& key) {
  const std::vector<StagePeer>& stages = attempts_[key].opened;
  FailureDetail detail{.kind = kind};
  if (!stages.empty() && Pick(2) == 0) detail.node = stages[Pick(stages.size())].node;
  return MakeFailure(detail, "broken");
}

void ShakyShell::AnswerOpen() {
  if (opens_.empty()) return;
  const auto [key, stage] = TakeAny(opens_);
  if (Pick(3) == 0) opens_.push_back({key, stage});  // To be answered again.
  const absl::Status answers[] = {
      MakeFailure(FailureKind::kKvExhausted, "no pages"), absl::UnavailableError("refused"),
      MakeFailure(FailureKind::kStaleEpoch, "another life"), absl::InternalError("broken")};
  const absl::Status answer = Pick(12) == 0 ? answers[Pick(4)] : absl::OkStatus();
  Session& session = sessions_[key.session];
  Attempt& attempt = attempts_[key];
  const bool decides =
      session.open == key && !attempt.ran && attempt.fenced.empty() && !attempt.doubted;
  if (absl::IsUnavailable(answer)) attempt.doubted = true;
  if (FailureKindOf(answer) == FailureKind::kStaleEpoch && decides) {
    session.blamed.insert(attempts_[key].opened[stage]);
  }
  absl::StatusOr<OpenResult> reply = OpenResult{.cached_tokens = CachedAt(key, stage)};
  if (!answer.ok()) reply = answer;
  core_.OnOpenReply(key, stage, reply, Now());
}

// Of the prompt's first pages; sometimes more than there are.
uint32_t ShakyShell::CachedAt(const AttemptKey& key, size_t stage) {
  const uint64_t pages = (key.session.value() * 5 + key.epoch.value() * 3 + stage * 7) % 5;
  return static_cast<uint32_t>(pages) * kPageTokens;
}

void ShakyShell::SendToken() {
  if (granted_.empty()) return;
  const AttemptKey key = AnyAttempt();
  uint32_t& next = attempts_[key].head_next;
  if (Pick(30) == 0) {
    const auto index = static_cast<uint32_t>(Pick(6));
    core_.OnToken(key, index, TokenAt(index), Now());
    return;
  }
  core_.OnToken(key, next, TokenAt(next), Now());
  if (attempts_[key].ran && next < kNewTokens) ++next;
}

void ShakyShell::EndRun() {
  if (granted_.empty()) return;
  const AttemptKey key = AnyAttempt();
  if (Pick(3) != 0) {
    core_.OnRunEnd(
        key, RunResult{.reason = FinishReason::kStop, .tokens = sessions_[key.session].delivered},
        Now());
    return;
  }
  const FailureKind kinds[] = {FailureKind::kStreamReset,   FailureKind::kDeadlineExceeded,
                               FailureKind::kNonFinite,     FailureKind::kUncertain,
                               FailureKind::kHeartbeatLost, FailureKind::kCacheMiss};
  const absl::Status failure = Named(kinds[Pick(6)], key);
  const FailureDetail detail = FailureDetailOf(failure);
  Attempt& attempt = attempts_[key];
  const bool decides = attempt.ran && attempt.fenced.empty() && !attempt.doubted;
  if (detail.kind == FailureKind::kStreamReset) attempt.doubted = true;
  if (decides && detail.kind == FailureKind::kUncertain) {
    for (const StagePeer& life : attempt.opened) {
      if (life.node == detail.node) sessions_[key.session].blamed.insert(life);
    }
  }
  core_.OnRunFailed(key, failure, Now());
}

void ShakyShell::AnswerFinish(bool refuse) {
  if (finishes_.empty()) return;
  const SessionsActions::Finish finish = TakeAny(finishes_);
  if (refuse) {
    core_.OnFinished(finish.key, MakeFailure(FailureKind::kOverloaded, "disk full"), Now());
    return;
  }
  Session& session = sessions_[finish.key.session];
  Require(session.open == finish.key, "only an open attempt gets its record");
  Require(!session.outcome.has_value(), "a session has one outcome");
  session.open.reset();
  session.outcome = finish.record;
  attempts_[finish.key].record = finish.record.outcome;
  core_.OnFinished(finish.key, finish.record.outcome, Now());
  if (Pick(3) == 0) core_.OnFinished(finish.key, finish.record.outcome, Now());
}

void ShakyShell::AnswerFence() {
  if (fences_.empty()) return;
  const auto [key, stage] = TakeAny(fences_);
  if (Pick(3) == 0) {
    --attempts_[key].fenced[stage];
    core_.OnFenceReply(key, stage, absl::UnavailableError("gone"), Now());
  } else {
    core_.OnFenceReply(key, stage, FenceResult{.pages_released = 1}, Now());
  }
  if (Pick(3) == 0) core_.OnFenceReply(key, stage, FenceResult{.pages_released = 1}, Now());
}

void ShakyShell::LoseNode() {
  const size_t i = Pick(kNodes);
  const StagePeer life{Node(i), Incarnation(lives_[i]++)};
  for (auto& [id, session] : sessions_) {
    if (!session.open) continue;
    const Attempt& attempt = attempts_[*session.open];
    const auto& opened = attempt.opened;
    const bool hit = std::find(opened.begin(), opened.end(), life) != opened.end();
    if (hit && attempt.fenced.empty()) ++session.deaths;
  }
  core_.OnNodeLost(life.node, life.incarnation, FailureKind::kWorkerDeath, "reset", Now());
}

void ShakyShell::Check() {
  CarryOut(core_.TakeActions());
  core_.OnTick(Now());
  CarryOut(core_.TakeActions());
  for (const auto& [id, client] : clients_) {
    if (Now() >= client.end_by) Require(client.over, "an end by deadline and grace");
  }
}

// In the order in which a shell does.
void ShakyShell::CarryOut(const SessionsActions& actions) {
  routes_.insert(routes_.end(), actions.find_route.begin(), actions.find_route.end());
  grants_.insert(grants_.end(), actions.grant.begin(), actions.grant.end());
  for (const auto& fence : actions.fence) TakeFence(fence);
  for (const auto& open : actions.open) TakeOpen(open);
  for (const auto& rebind : actions.rebind) TakeRebind(rebind);
  for (const auto& started : actions.started) {
    Client& client = clients_[started.client];
    Require(!client.started && !client.over, "started once, and first");
    client.started = true;
  }
  for (const auto& restarted : actions.restarted) {
    Require(clients_[restarted.client].started, "restarted after started");
  }
  for (const auto& run : actions.run) TakeRun(run);
  for (const auto& deliver : actions.deliver) TakeDeliver(deliver);
  for (const auto& finish : actions.finish) TakeFinish(finish);
  for (const auto& end : actions.end) TakeEnd(end);
  for (const auto& forget : actions.forget) {
    Require(forgotten_.insert(forget.request).second, "forgotten once");
  }
}

void ShakyShell::TakeFence(const SessionsActions::Fence& fence) {
  Attempt& attempt = attempts_[fence.key];
  Require(fence.stage < attempt.opened.size(), "a fence only where an open was sent");
  Require(++attempt.fenced[fence.stage] == 1, "fenced again only after a failed answer");
  fences_.push_back({fence.key, fence.stage});
}

void ShakyShell::TakeOpen(const SessionsActions::Open& open) {
  Session& session = sessions_[open.key.session];
  Attempt& attempt = attempts_[open.key];
  Require(session.open == open.key, "opens only what the ledger has open");
  Require(attempt.fenced.empty(), "opened before its fence");
  Require(open.stage == attempt.opened.size(), "each stage is opened once, in order");
  Require(!session.blamed.contains(open.to.peer()) || refused_.contains(open.request),
          "a new attempt leaves the suspects out where it can");
  Require(session.deaths < 2, "no attempt after two deaths");
  if (open.stage == 0) {
    Require(++session.opened_attempts <= 3, "at most three attempts run, less those without room");
  }
  attempt.opened.push_back(open.to.peer());
  opens_.push_back({open.key, open.stage});
}

void ShakyShell::TakeRebind(const SessionsActions::Rebind& rebind) {
  if (!rebind.from) return;
  Client& from = clients_[*rebind.from];
  Require(!from.over, "only who still listens is taken over");
  from.over = true;
  ++seen_.taken_over;
}

void ShakyShell::TakeRun(const SessionsActions::Run& run) {
  Attempt& attempt = attempts_[run.key];
  Require(!attempt.ran, "run once");
  Require(attempt.fenced.empty(), "run before its fence");
  for (size_t stage = 0; stage < attempt.opened.size(); ++stage) {
    Require(run.cached_tokens <= CachedAt(run.key, stage),
            "a run begins where every stage has what is before");
  }
  Require(run.cached_tokens % kPageTokens == 0, "a run begins at the end of a page");
  Require(run.cached_tokens < kPromptTokens + run.delivered.size(), "a run computes something");
  attempt.ran = true;
  attempt.head_next = static_cast<uint32_t>(run.delivered.size());
  Session& session = sessions_[run.key.session];
  session.delivered = std::max(session.delivered, attempt.head_next);
}

void ShakyShell::TakeDeliver(const SessionsActions::Deliver& deliver) {
  Client& client = clients_[deliver.client];
  Require(client.started, "started before a token");
  Require(!client.over, "a token after the end");
  Require(deliver.index == client.next, "a gap or a repeat");
  Require(deliver.token == TokenAt(deliver.index), "another token");
  client.next = deliver.index + 1;
  Session& session = sessions_[deliver.key.session];
  if (client.next > session.delivered) {
    Require(!attempts_[deliver.key].finishing, "a new token after the outcome");
    Require(session.open == deliver.key, "a token of an attempt that is not open");
    session.delivered = client.next;
  }
}

void ShakyShell::TakeFinish(const SessionsActions::Finish& finish) {
  Attempt& attempt = attempts_[finish.key];
  Require(!attempt.record.has_value(), "a record after the record");
  Require(finish.record.tokens == sessions_[finish.key.session].delivered,
          "the record counts what was delivered");
  Require(std::none_of(finishes_.begin(), finishes_.end(),
                       [&](const auto& out) { return out.key == finish.key; }),
          "two records at once");
  attempt.finishing = true;
  finishes_.push_back(finish);
}

void ShakyShell::TakeEnd(const SessionsActions::End& end) {
  Client& client = clients_[end.client];
  Require(!client.over, "ended twice");
  client.over = true;
  if (!end.status.ok()) return;
  const Session& session = sessions_[end.key->session];
  Require(session.outcome && session.outcome->outcome == SessionOutcome::kCompleted,
          "success before its record");
  if (!session.outcome) return;
  Require(client.next == session.outcome->tokens, "the client has every token of the record");
  ++seen_.completed;
  if (end.key->epoch > Epoch(1)) ++seen_.completed_later;
}

}  // namespace shardline::testing
