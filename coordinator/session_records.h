#pragma once

// Between the words of the sessions' core and those of the store, which do not know each other.

#include "coordinator/sessions/session_words.h"
#include "coordinator/store/store.h"

namespace shardline {

AttemptState ToAttemptState(SessionOutcome outcome);
// kFailed for an attempt that is open: it has no outcome to speak of.
SessionOutcome ToOutcome(AttemptState state);

AttemptRecord ToRecord(const EndRecord& end);
EndRecord FromRecord(const AttemptRecord& record);

AttemptGrant ToGrant(const SessionsActions::Grant& action);
RequestIdentity ToRequestIdentity(const SessionIdentity& identity);
Admitted FromAdmission(const Admission& admission);

}  // namespace shardline
