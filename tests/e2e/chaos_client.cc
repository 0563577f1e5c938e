#include "tests/e2e/chaos_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/failure.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"

namespace shardline::testing {
namespace {

using Outcome = ClientReport::Outcome;

constexpr absl::Duration kHungAfter = absl::Seconds(10);  // Past the deadline.
constexpr absl::Duration kRetryPause = absl::Milliseconds(100);

// Only our own bug, or somebody's attack, can cause these: no fault of this program does.
bool MayEndASession(FailureKind kind) {
  switch (kind) {
    case FailureKind::kNone:
    case FailureKind::kInvalidRequest:
    case FailureKind::kStaleEpoch:
    case FailureKind::kIncompatibleRecipe:
    case FailureKind::kStepConflict:
    case FailureKind::kStepInFlight:
    case FailureKind::kMalformedBundle:
    case FailureKind::kChecksumMismatch:
    case FailureKind::kNonFinite:
    case FailureKind::kDiverged:
    case FailureKind::kKeyConflict:
    case FailureKind::kUnauthorised:
      return false;
    default:
      return true;
  }
}

class Client {
 public:
  Client(Cluster& cluster, const PlannedSession& planned, const Recipe& recipe,
         const ReferenceAnswer& reference, std::atomic<int64_t>& tokens_seen)
      : cluster_(cluster),
        planned_(planned),
        reference_(reference),
        tokens_seen_(tokens_seen),
        give_up_(SystemClock()->Now() + planned.deadline) {
    request_ = recipe.request;
    request_.set_new_tokens_max(planned.tokens);
    request_.set_deadline_ms(absl::ToInt64Milliseconds(planned.deadline));
    static std::atomic<int64_t> keys = 0;
    if (planned.keyed) request_.set_idempotency_key(absl::StrCat("chaos-", ++keys));
  }

  ClientReport Run() {
    while (!Ask()) {
      absl::Notification never;
      never.WaitForNotificationWithTimeout(kRetryPause);
      if (SystemClock()->Now() < give_up_) continue;
      report_.outcome = report_.sessions.empty() ? Outcome::kRefused : Outcome::kLost;
      break;
    }
    return std::move(report_);
  }

 private:
  // One call; false when it should be tried again.
  bool Ask() {
    attached_ = !report_.sessions.empty();
    if (attached_) {
      v1::Reattach* reattach = request_.mutable_reattach();
      reattach->set_session(report_.sessions.back().value());
      reattach->mutable_tokens_held()->Assign(report_.tokens.begin(), report_.tokens.end());
    }
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(planned_.deadline + kHungAfter));
    const Instant asked = SystemClock()->Now();
    auto reader = cluster_.inference().Generate(&context, request_);
    started_ = false;
    end_.reset();
    v1::GenerateEvent event;
    while (reader->Read(&event)) OnEvent(event, context);
    report_.status = FromGrpcStatus(reader->Finish());
    report_.took = SystemClock()->Now() - asked;
    if (started_ && attached_) ++report_.reattaches;
    return Judge();
  }

  void OnEvent(const v1::GenerateEvent& event, grpc::ClientContext& context) {
    if (end_) Violation("an event after the end");
    if (event.has_started()) OnStarted(event.started());
    if (event.has_restarted()) ++report_.restarts;
    if (event.has_end()) {
      end_ = event.end();
      report_.text += event.end().text();
    }
    if (!event.has_token()) return;
    OnToken(event.token());
    if (report_.tokens.size() != planned_.at_token) return;
    if (planned_.client == PlannedSession::Client::kLeaves) {
      left_ = true;
      context.TryCancel();
    }
    if (planned_.client == PlannedSession::Client::kCancels) Cancel(context);
  }

  void OnStarted(const v1::GenerateStarted& started) {
    started_ = true;
    const SessionId session(started.session());
    if (!report_.sessions.empty() && report_.sessions.back() == session) return;
    if (!report_.tokens.empty()) Violation("came back and was given a new session");
    report_.sessions.push_back(session);
  }

  void OnToken(const v1::GenerateToken& token) {
    const size_t index = token.token().index();
    if (index != report_.tokens.size()) {
      Violation(absl::StrCat("token ", index, " where ", report_.tokens.size(), " comes next"));
      return;
    }
    if (index >= planned_.tokens) {
      Violation(absl::StrCat("token ", index, " of ", planned_.tokens));
      return;
    }
    if (token.token().token() != reference_.tokens[index]) {
      Violation(absl::StrCat("token ", index, " is ", token.token().token(), ", undisturbed ",
                             reference_.tokens[index]));
    }
    if (token.token().logits_digest() != reference_.digests[index]) {
      Violation(absl::StrCat("the logits of token ", index, " are not the undisturbed ones"));
    }
    report_.tokens.push_back(token.token().token());
    report_.text += token.text();
    ++tokens_seen_;
  }

  void Cancel(grpc::ClientContext& context) {
    cancelled_ = true;
    grpc::ClientContext own;
    own.set_deadline(GrpcDeadline(kHungAfter));
    v1::CancelSessionRequest request;
    request.set_session(report_.sessions.empty() ? 0 : report_.sessions.back().value());
    request.set_reason("chaos");
    v1::CancelSessionReply reply;
    const grpc::Status status = cluster_.admin().CancelSession(&own, request, &reply);
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) context.TryCancel();
  }

  // What the call's end means; false when it should be tried again.
  bool Judge() {
    const absl::Status& status = report_.status;
    const FailureKind kind = FailureKindOf(status);
    if (end_ && !status.ok()) Violation("an end, and then an error");
    if (status.ok()) {
      report_.outcome = Outcome::kCompleted;
      if (!end_) Violation("ended well without an end");
      if (report_.tokens.size() != planned_.tokens) {
        Violation(
            absl::StrCat("completed with ", report_.tokens.size(), " tokens of ", planned_.tokens));
      }
      return true;
    }
    if (left_) {
      report_.outcome = Outcome::kLeft;
      return true;
    }
    if (kind == FailureKind::kDeadlineExceeded) {
      report_.outcome = Outcome::kExpired;
      return true;
    }
    if (kind == FailureKind::kCancelled || (cancelled_ && absl::IsCancelled(status))) {
      report_.outcome = Outcome::kCancelled;
      if (!cancelled_) Violation("cancelled, and nobody had asked for it");
      return true;
    }
    if (absl::IsDeadlineExceeded(status)) {  // The client's own backstop.
      Violation(
          absl::StrCat("hung: no end ", absl::FormatDuration(kHungAfter), " after its deadline"));
      report_.outcome = Outcome::kFailed;
      return true;
    }
    // The coordinator is away, or has no room or no route for a newcomer.
    const bool connection_lost = absl::IsUnavailable(status) && kind == FailureKind::kNone;
    if (!started_ && (absl::IsUnavailable(status) || absl::IsResourceExhausted(status))) {
      ++report_.refusals;
      return false;
    }
    if (connection_lost) return false;
    // Completed while its client was away, and without a key nobody kept the answer.
    if (attached_ && !planned_.keyed && absl::IsNotFound(status)) {
      report_.outcome = Outcome::kLost;
      return true;
    }
    report_.outcome = Outcome::kFailed;
    if (!MayEndASession(kind)) Violation("no fault may end a session like this");
    return true;
  }

  void Violation(absl::string_view what) {
    std::string sessions;
    for (const SessionId session : report_.sessions)
      absl::StrAppend(&sessions, " ", session.value());
    report_.violations.push_back(
        absl::StrCat("session", sessions, ": ", what, report_.status.ok() ? "" : "; ",
                     report_.status.ok() ? "" : report_.status.ToString()));
  }

  Cluster& cluster_;
  const PlannedSession& planned_;
  const ReferenceAnswer& reference_;
  std::atomic<int64_t>& tokens_seen_;
  const Instant give_up_;
  v1::GenerateRequest request_;
  ClientReport report_;
  std::optional<v1::GenerateEnd> end_;  // Of this call.
  bool started_ = false;                // By this call.
  bool attached_ = false;               // This call goes on with a session.
  bool left_ = false;
  bool cancelled_ = false;
};

}  // namespace

absl::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCompleted:
      return "completed";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kExpired:
      return "expired";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kLeft:
      return "left";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kLost:
      return "lost";
  }
  return "?";
}

ClientReport RunClient(Cluster& cluster, const PlannedSession& planned, const Recipe& recipe,
                       const ReferenceAnswer& reference, std::atomic<int64_t>& tokens_seen) {
  return Client(cluster, planned, recipe, reference, tokens_seen).Run();
}

}  // namespace shardline::testing
