#pragma once

// Why a model does not answer, as a client of the HTTP API is told it: not there, still loading
// (with how far it is), or without some of its layers.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/admin/cluster_view.h"
#include "coordinator/gateway/api_error.h"

namespace shardline {

// A model of that name is not in service; empty: none was named, and it is not the only one.
ApiError ErrorOfMissingModel(const absl::StatusOr<ClusterView>& view, const std::string& name);

// True for a failure that the state of the model may explain better than `ErrorOf` does.
bool ModelMayExplain(const absl::Status& failure);
// The failure of a call for this model, before its first token.
ApiError ErrorOfModel(const absl::StatusOr<ClusterView>& view, const std::string& name,
                      const absl::Status& failure);

// While requests are not taken any more because the coordinator stops.
ApiError ErrorOfDraining();

}  // namespace shardline
