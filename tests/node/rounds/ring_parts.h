#pragma once

// What the ring of ring.cc is made of. Plain data.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/id.h"
#include "node/stage/compute_job.h"
#include "node/stage/stage_bundle.h"
#include "node/stage/stage_core.h"
#include "tests/node/rounds/fake_device.h"

namespace shardline::testing {

struct RingNode {
  std::unique_ptr<StageCore> stage;
  std::unique_ptr<FakeDevice> device;
  std::deque<ComputeJob> jobs;
};

struct RingSession {
  FakeRequest request;
  std::string tenant;
  std::vector<int32_t> delivered;
  uint64_t epoch = 0;
  bool is_running = false;
  bool is_done = false;
};

// One row in a link. Rows of one attempt keep their order; others overtake each other.
struct Parcel {
  BundleRow row;
  BufferRef hidden;
  uint64_t connection = 0;  // 0: a copy, of nobody knows which.
};

// Against the bundles, from the receiver of a link to its sender.
struct Signal {
  size_t from = 0;
  size_t to = 0;
  std::optional<RowFailure> failure;
  std::vector<InspectStatus> statuses;
};

struct FenceOrder {
  size_t node = 0;
  AttemptKey key;
};

}  // namespace shardline::testing
