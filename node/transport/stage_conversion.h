#pragma once

// The cores' words to and from the wire's messages.
//
// What comes in is foreign: counts have limits, node ids are plain, enums are known; whatever is
// not fails with kInvalidRequest naming the field. What a core judges (epochs, routes, sampling)
// is left to the core.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node/rounds/run_attempt.h"
#include "node/stage/stage_bundle.h"
#include "proto/wire/link_codec.h"
#include "shardline/v1/head.pb.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

inline constexpr int kRouteStagesMax = 256;
inline constexpr int kPromptTokensMax = 1 << 20;
inline constexpr int kLogitBiasMax = 1024;
inline constexpr int kStopTokensMax = 64;
inline constexpr int kCapabilityBytesMax = 64;

v1::Recipe ToProto(const Recipe& recipe);
Recipe FromProto(const v1::Recipe& recipe);

v1::OpenRequest ToProto(const OpenAttempt& open);
absl::StatusOr<OpenAttempt> FromProto(const v1::OpenRequest& request);
v1::OpenReply ToProto(const OpenReply& reply);
v1::FenceReply ToProto(const FenceReply& reply);

v1::RowFailure ToProto(const RowFailure& failure);
RowFailure FromProto(const v1::RowFailure& failure);

v1::LinkInspect ToProto(const std::vector<InspectRow>& rows);
std::vector<InspectRow> FromProto(const v1::LinkInspect& inspect);
v1::LinkStatus ToProto(const std::vector<InspectStatus>& statuses);
std::vector<InspectStatus> FromProto(const v1::LinkStatus& status);

// Of a bundle or a plan.
std::vector<LinkRow> ToLinkRows(const std::vector<BundleRow>& rows);
std::vector<BundleRow> FromLinkRows(const std::vector<LinkRow>& rows);

// REQUIRES: rows and hidden agree; no tokens. The sequence is the link's to set.
LinkBundle ToLinkBundle(StageBundle bundle, int32_t hidden_dim);
StageBundle FromLinkBundle(LinkBundle bundle);

// What the coordinator asks the head to run. `route` and `tokens_max` of the run are filled from
// the OPEN by whoever has it.
struct RunRequest {
  Term term;
  Incarnation incarnation;
  std::string capability;  // That of the OPEN.
  RunAttempt run;
};

absl::StatusOr<RunRequest> FromProto(const v1::RunAttemptRequest& request);
v1::RunAttemptEvent ToProto(const TokenOut& token);
v1::RunAttemptEvent ToProto(const ProgressOut& progress);
// REQUIRES: end.status is OK.
v1::RunAttemptEvent ToProto(const AttemptEnd& end);

}  // namespace shardline
