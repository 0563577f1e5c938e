#pragma once

// What an operator wishes of a model, in our words, and what would come of it. Pure.

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/model_file.h"
#include "coordinator/model_plan.h"
#include "coordinator/placement/placement.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

// The name it will have: the one given, else the file's.
std::string ModelNameFor(const v1::LoadModelRequest& request);

// kInvalidRequest for numbers that no cluster has.
absl::StatusOr<ModelWish> WishOf(const v1::LoadModelRequest& request);

// Where PlaceModel would put it now. That it does not fit is an answer; a wish that makes no sense
// is kInvalidRequest.
absl::StatusOr<v1::ModelPreview> PreviewPlacement(const ModelFile& file, const ModelWish& wish,
                                                  absl::Span<const NodeCost> nodes);

}  // namespace shardline
