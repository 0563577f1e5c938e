#pragma once

// Deadlines for gRPC on the monotonic clock. gRPC's own conversions from std::chrono and
// absl::Time go through the wall clock, which may jump while a call is up.
//
//   context.set_deadline(GrpcDeadline(absl::Seconds(5)));
//   server->Shutdown(GrpcDeadline(absl::ZeroDuration()));

#include <grpc/support/time.h>

#include "absl/time/time.h"

namespace shardline {

// The instant `budget` from now; never, if the budget is infinite. A budget of nothing or less has
// passed already.
inline gpr_timespec GrpcDeadline(absl::Duration budget) {
  if (budget == absl::InfiniteDuration()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const gpr_timespec span = gpr_time_from_nanos(absl::ToInt64Nanoseconds(budget), GPR_TIMESPAN);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), span);
}

}  // namespace shardline
