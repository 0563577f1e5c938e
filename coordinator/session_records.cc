#include "coordinator/session_records.h"

namespace shardline {

AttemptState ToAttemptState(SessionOutcome outcome) {
  switch (outcome) {
    case SessionOutcome::kCompleted:
      return AttemptState::kCompleted;
    case SessionOutcome::kFailed:
      return AttemptState::kFailed;
    case SessionOutcome::kCancelled:
      return AttemptState::kCancelled;
    case SessionOutcome::kExpired:
      return AttemptState::kExpired;
    case SessionOutcome::kFenced:
      return AttemptState::kFenced;
    case SessionOutcome::kUnverified:
      return AttemptState::kUnverified;
  }
  return AttemptState::kFailed;
}

SessionOutcome ToOutcome(AttemptState state) {
  switch (state) {
    case AttemptState::kCompleted:
      return SessionOutcome::kCompleted;
    case AttemptState::kCancelled:
      return SessionOutcome::kCancelled;
    case AttemptState::kExpired:
      return SessionOutcome::kExpired;
    case AttemptState::kFenced:
      return SessionOutcome::kFenced;
    case AttemptState::kUnverified:
      return SessionOutcome::kUnverified;
    case AttemptState::kFailed:
    case AttemptState::kOpen:
      break;
  }
  return SessionOutcome::kFailed;
}

AttemptRecord ToRecord(const EndRecord& end) {
  return {.state = ToAttemptState(end.outcome),
          .prompt_tokens = end.prompt_tokens,
          .tokens = end.tokens,
          .work_tokens = end.work_tokens,
          .digest = end.digest,
          .kind = end.kind,
          .detail = end.detail};
}

EndRecord FromRecord(const AttemptRecord& record) {
  return {.outcome = ToOutcome(record.state),
          .prompt_tokens = static_cast<uint32_t>(record.prompt_tokens),
          .tokens = static_cast<uint32_t>(record.tokens),
          .work_tokens = record.work_tokens,
          .digest = record.digest,
          .kind = record.kind,
          .detail = record.detail};
}

AttemptGrant ToGrant(const SessionsActions::Grant& action) {
  AttemptGrant grant{.session = action.session.value_or(SessionId()),
                     .plan = action.plan,
                     .route = action.route,
                     .budget = action.budget,
                     .tokens_max = action.tokens_max,
                     .previous = std::nullopt};
  if (action.previous) grant.previous = ToRecord(*action.previous);
  return grant;
}

RequestIdentity ToRequestIdentity(const SessionIdentity& identity) {
  return {.tenant = identity.tenant,
          .key = identity.key,
          .digest = identity.digest,
          .session = identity.session};
}

Admitted FromAdmission(const Admission& admission) {
  Admitted admitted{.key = admission.key,
                    .granted = admission.granted,
                    .known = admission.known,
                    .outcome = std::nullopt,
                    .tokens = admission.tokens};
  if (admission.outcome) admitted.outcome = FromRecord(*admission.outcome);
  return admitted;
}

}  // namespace shardline
