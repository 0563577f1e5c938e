#pragma once

// absl::Status and FailureDetail to and from the wire, once for everybody.
//
// Over gRPC the code and message travel as they are, and the detail as a serialised v1::Failure in
// error_details. What comes in is never trusted: a failure stays a failure whatever its code says,
// an unknown kind keeps the code and loses the detail, long texts are cut, and a node id that
// could not be one is dropped.

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "base/failure.h"
#include "shardline/v1/common.pb.h"

namespace shardline {

// REQUIRES: !status.ok().
v1::Failure ToProto(const absl::Status& status);

// Never OK.
absl::Status FromProto(const v1::Failure& failure);

grpc::Status ToGrpcStatus(const absl::Status& status);

// OK only for an OK status.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace shardline
