#include "coordinator/admin/ledger_view.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {
namespace {

constexpr AttemptState kTerminal[] = {AttemptState::kCompleted, AttemptState::kFailed,
                                      AttemptState::kCancelled, AttemptState::kExpired,
                                      AttemptState::kFenced,    AttemptState::kUnverified};

}  // namespace

absl::StatusOr<LedgerQuery> FromProto(const v1::ListRecordsRequest& request,
                                      uint64_t limit_default) {
  LedgerQuery query{.session = {},
                    .state = {},
                    .after = request.after(),
                    .limit = request.limit() == 0 ? limit_default : request.limit()};
  if (request.session() != 0) query.session = SessionId(request.session());
  if (request.state().empty()) return query;
  std::string known;
  for (const AttemptState state : kTerminal) {
    const std::string name(AttemptStateName(state));
    if (name == request.state()) query.state = state;
    absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  }
  if (query.state) return query;
  return MakeFailure(FailureKind::kInvalidRequest,
                     absl::StrCat("no record is \"", request.state(), "\"; states are ", known));
}

v1::LedgerRecord ToProto(const LedgerEntry& entry) {
  v1::LedgerRecord record;
  record.set_sequence(entry.sequence);
  record.set_session(entry.key.session.value());
  record.set_epoch(entry.key.epoch.value());
  record.set_term(entry.term.value());
  record.set_plan_epoch(entry.plan.value());
  record.set_route(entry.route);
  record.set_state(std::string(AttemptStateName(entry.record.state)));
  record.set_prompt_tokens(entry.record.prompt_tokens);
  record.set_tokens(entry.record.tokens);
  const bool billed = entry.record.state == AttemptState::kCompleted;
  record.set_billed_tokens(billed ? entry.record.tokens : 0);
  record.set_work_tokens(entry.record.work_tokens);
  if (entry.record.kind != FailureKind::kNone) {
    record.set_kind(std::string(FailureKindName(entry.record.kind)));
  }
  record.set_detail(entry.record.detail);
  record.set_finished_unix_ms(entry.finished_unix_ms);
  record.set_hash(absl::BytesToHexString(entry.hash));
  return record;
}

v1::LedgerVerdict ToProto(const LedgerVerdict& verdict) {
  v1::LedgerVerdict reply;
  reply.set_ok(verdict.problems.empty());
  for (const std::string& problem : verdict.problems) reply.add_problems(problem);
  reply.set_records(verdict.records);
  reply.set_open_attempts(verdict.open_attempts);
  reply.set_billed_tokens(verdict.billed_tokens);
  reply.set_wasted_tokens(verdict.wasted_tokens);
  reply.set_work_tokens(verdict.work_tokens);
  reply.set_head_hash(absl::BytesToHexString(verdict.head_hash));
  return reply;
}

}  // namespace shardline
