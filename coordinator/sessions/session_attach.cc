// A client that comes back: to a session that runs, or to one that is over.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/sessions/session_core.h"

namespace shardline {
namespace {

// Whether a client that holds `held` may be told the rest of `tokens`.
absl::Status CheckHeld(const std::vector<int32_t>& held, const std::vector<int32_t>& tokens) {
  if (held.size() > tokens.size()) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("reattach: ", held.size(), " tokens are held, but only ",
                                    tokens.size(), " were delivered"));
  }
  const auto [mine, theirs] = std::mismatch(held.begin(), held.end(), tokens.begin());
  if (mine == held.end()) return absl::OkStatus();
  return MakeFailure(FailureKind::kDiverged,
                     absl::StrCat("reattach: token ", mine - held.begin(), " held is ", *mine,
                                  ", delivered was ", *theirs));
}

// What a client is told about a session that has ended without an answer.
absl::Status StatusOf(const Admitted& admitted) {
  const EndRecord& end = *admitted.outcome;
  FailureDetail detail{
      .kind = end.kind, .session = admitted.key.session, .epoch = admitted.key.epoch};
  if (end.outcome == SessionOutcome::kCancelled) detail.kind = FailureKind::kCancelled;
  if (end.outcome == SessionOutcome::kExpired) detail.kind = FailureKind::kDeadlineExceeded;
  const std::string message =
      absl::StrCat("session ", admitted.key.session.value(),
                   " is over: ", std::string(SessionOutcomeName(end.outcome)),
                   end.detail.empty() ? "" : ": ", end.detail);
  if (detail.kind == FailureKind::kNone) return absl::InternalError(message);
  return MakeFailure(detail, message);
}

}  // namespace

absl::Status SessionCore::Attach(RequestId client, const std::vector<int32_t>& tokens_held,
                                 Instant now) {
  if (const absl::Status fits = CheckHeld(tokens_held, delivered_); !fits.ok()) return fits;
  shared_.actions->rebind.push_back(
      {.request = request_.request, .from = client_, .to = client, .tokens_held = tokens_held});
  // The older one may have been told that the record is not written yet; this one waits for it.
  if (!client_) end_by_ = now + shared_.options->end_grace;
  client_ = last_client_ = client;
  held_ = tokens_held;
  if (!started_sent_) return absl::OkStatus();
  shared_.actions->started.push_back(
      {.request = request_.request, .client = client, .key = *key_, .route = route_});
  CatchUp(tokens_held.size());
  return absl::OkStatus();
}

void SessionCore::CatchUp(size_t from) {
  for (size_t i = from; i < delivered_.size(); ++i) {
    shared_.actions->deliver.push_back({.request = request_.request,
                                        .client = *client_,
                                        .key = *key_,
                                        .index = static_cast<uint32_t>(i),
                                        .token = delivered_[i]});
  }
}

void SessionCore::Replay(const Admitted& admitted, Instant now) {
  key_ = admitted.key;
  absl::Status status;
  if (ending_) {
    status = ending_->status;
  } else if (admitted.outcome->outcome == SessionOutcome::kCompleted) {
    status = ReplayTokens(admitted, now);
  } else {
    status = StatusOf(admitted);
  }
  if (client_) SendEnd(status, now);
  ++shared_.stats->replayed;
  over_ = true;
}

absl::Status SessionCore::ReplayTokens(const Admitted& admitted, Instant now) {
  const EndRecord& end = *admitted.outcome;
  const bool holds_all = held_.size() == end.tokens && TokensDigest(held_) == end.digest;
  if (admitted.tokens.size() != end.tokens && !holds_all) {
    return absl::NotFoundError(
        absl::StrCat("session ", admitted.key.session.value(), " has completed with ", end.tokens,
                     " tokens, which were not kept: it had no idempotency key"));
  }
  delivered_ = holds_all ? held_ : admitted.tokens;
  if (const absl::Status fits = CheckHeld(held_, delivered_); !fits.ok()) return fits;
  const bool full = end.tokens >= request_.new_tokens_max;
  result_ = {.reason = full ? FinishReason::kLength : FinishReason::kStop, .tokens = end.tokens};
  if (!delivered_.empty()) first_token_at_ = now;
  shared_.actions->started.push_back(
      {.request = request_.request, .client = *client_, .key = *key_, .route = Route()});
  CatchUp(held_.size());
  return absl::OkStatus();
}

}  // namespace shardline
