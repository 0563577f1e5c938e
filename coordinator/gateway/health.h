#pragma once

// Is it alive, may it be asked? In the words of Kubernetes and of llama-server. Pure.

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/admin/cluster_view.h"
#include "coordinator/gateway/http_message.h"

namespace shardline {

// Beyond this the loop counts as stuck.
inline constexpr absl::Duration kLoopSilenceMax = absl::Seconds(5);

// GET /livez: 200 as long as the loop turns, whatever it says. `loop_silent`: for how long a
// question to it has been waiting.
HttpResponse LivezResponse(absl::Duration loop_silent);

// GET /readyz: 200 once a model is ready, unless the coordinator drains or may not serve; else 503.
// `verbose` lists what was looked at, one line each, "[+]" or "[-]".
HttpResponse ReadyzResponse(const absl::StatusOr<ClusterView>& view, bool verbose);

// GET /health: the same verdict, {"status":"ok"} or the error of everything else.
HttpResponse HealthResponse(const absl::StatusOr<ClusterView>& view);

}  // namespace shardline
