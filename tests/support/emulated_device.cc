#include "tests/support/emulated_device.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/gguf_file.h"
#include "model/hyper_parameters.h"

namespace shardline::testing {
namespace {

constexpr size_t kJobsMax = 64;

uint32_t Mix(uint32_t a, uint32_t b) {
  uint64_t x = (uint64_t{a} << 32 | b) * 0x9E3779B97F4A7C15ULL;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ULL;
  return static_cast<uint32_t>(x >> 40);
}

// The hash travels in a row's first float, which holds its 24 bits exactly.
uint32_t HashOf(const float* row) { return static_cast<uint32_t>(row[0]); }

}  // namespace

EmulatedDevice::EmulatedDevice(const EmulatedDeviceOptions& options)
    : options_(options), items_(kJobsMax), thread_([this] { Loop(); }) {}

EmulatedDevice::~EmulatedDevice() { Shutdown(); }

absl::Status EmulatedDevice::Submit(ComputeJob job, DoneCallback done) {
  Item item{.job = std::move(job), .done = std::move(done), .submitted = SystemClock()->Now()};
  if (items_.TryPost(std::move(item))) {
    jobs_submitted_.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  if (items_.closed()) return MakeFailure(FailureKind::kCancelled, "the device is shut down");
  return MakeFailure(FailureKind::kOverloaded, "the device's queue is full");
}

ExecutorProgress EmulatedDevice::progress() const {
  return ExecutorProgress{.jobs_submitted = jobs_submitted_.load(std::memory_order_relaxed),
                          .jobs_started = jobs_started_.load(std::memory_order_relaxed),
                          .jobs_done = jobs_done_.load(std::memory_order_relaxed)};
}

void EmulatedDevice::Shutdown() {
  if (!stopped_.HasBeenNotified()) stopped_.Notify();
  items_.Close();
  if (thread_.joinable()) thread_.join();
}

void EmulatedDevice::AwaitEnd(Instant end) {
  stopped_.WaitForNotificationWithTimeout(end - SystemClock()->Now());
}

void EmulatedDevice::Loop() {
  Instant free_at;
  while (std::optional<Item> item = items_.Take()) {
    const uint64_t before = jobs_started_.fetch_add(1, std::memory_order_relaxed);
    if (before >= options_.hang_after) absl::Notification().WaitForNotification();
    free_at = std::max(free_at, item->submitted) + TimeOf(item->job);
    ComputeDone done = Run(item->job);
    AwaitEnd(free_at);
    jobs_done_.fetch_add(1, std::memory_order_relaxed);
    std::move(item->done)(std::move(done));
  }
}

absl::Duration EmulatedDevice::TimeOf(const ComputeJob& job) const {
  if (job.kind == JobKind::kFinish) {
    size_t rows = 0;
    for (const SampleTarget& target : job.samples) rows += 1 + target.drafts.size();
    return options_.cost.finish_step + static_cast<double>(rows) * options_.cost.finish_row;
  }
  int32_t rows = 0;
  for (const JobSlice& slice : job.slices) rows += slice.token_count;
  return options_.cost.step + rows * options_.cost.row;
}

ComputeDone EmulatedDevice::Run(const ComputeJob& job) const {
  ComputeDone done{.id = job.id, .compute_time = TimeOf(job)};
  if (stopped_.HasBeenNotified()) {
    done.status = MakeFailure(FailureKind::kCancelled, "the device is shut down");
  } else if (job.kind == JobKind::kLayers) {
    RunLayers(job, done);
  } else {
    RunFinish(job, done);
  }
  return done;
}

void EmulatedDevice::RunLayers(const ComputeJob& job, ComputeDone& done) const {
  const auto dim = static_cast<size_t>(options_.hidden_dim);
  size_t rows = 0;
  for (const JobSlice& slice : job.slices) rows += static_cast<size_t>(slice.token_count);
  const std::shared_ptr<Buffer> hidden = Buffer::Allocate(rows * dim * sizeof(float));
  std::memset(hidden->data(), 0, hidden->size());
  size_t row = 0;
  for (const JobSlice& slice : job.slices) {
    for (int32_t i = 0; i < slice.token_count; ++i, ++row) {
      const uint32_t in = job.hidden == nullptr ? static_cast<uint32_t>(job.tokens.at(row))
                                                : HashOf(job.hidden->floats().data() + row * dim);
      hidden->floats()[row * dim] =
          static_cast<float>(Mix(in, static_cast<uint32_t>(slice.position + i)));
    }
    done.slice_status.push_back(absl::OkStatus());
  }
  done.hidden = hidden;
}

void EmulatedDevice::RunFinish(const ComputeJob& job, ComputeDone& done) const {
  const auto dim = static_cast<size_t>(options_.hidden_dim);
  const auto vocab = static_cast<size_t>(options_.vocab_size);
  for (const SampleTarget& target : job.samples) {
    std::vector<float> logits((1 + target.drafts.size()) * vocab);
    for (size_t i = 0; i < logits.size(); ++i) {
      const size_t row = static_cast<size_t>(target.row) + i / vocab;
      const uint32_t hash = HashOf(job.hidden->floats().data() + row * dim);
      logits[i] = static_cast<float>(Mix(hash, static_cast<uint32_t>(i % vocab)) & 0xFFFF);
    }
    DrawnTokens drawn = target.sampler->SampleInTurn(logits, target.drafts, target.index);
    done.samples.push_back({.key = target.key,
                            .status = std::move(drawn.status),
                            .tokens = std::move(drawn.tokens),
                            .finished = drawn.finished});
  }
}

absl::StatusOr<LoadedShard> EmulatedShardLoader::Load(const ShardOrder& order,
                                                      const Progress& progress) {
  SL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(order.model_path));
  SL_ASSIGN_OR_RETURN(const HyperParameters hp, HyperParameters::FromGguf(file));
  if (!progress(1, 1)) return MakeFailure(FailureKind::kCancelled, "loading was cancelled");
  LoadedShard shard;
  shard.numerics_id = NumericsId("emulated");
  shard.layers_total = hp.layer_count;
  shard.hidden_dim = hidden_dim_;
  shard.vocab_size = hp.vocab_size;
  shard.context_tokens_max =
      order.context_tokens_max == 0 ? hp.context_length : order.context_tokens_max;
  shard.tensor_bytes = 1;
  shard.cost.step = order.layers.count() * layer_cost_.step;
  shard.cost.row = order.layers.count() * layer_cost_.row;
  if (order.is_head) {
    shard.cost.finish_step = layer_cost_.finish_step;
    shard.cost.finish_row = layer_cost_.finish_row;
  }
  shard.executor =
      std::make_shared<EmulatedDevice>(EmulatedDeviceOptions{.cost = shard.cost,
                                                             .hidden_dim = hidden_dim_,
                                                             .vocab_size = hp.vocab_size,
                                                             .hang_after = hang_after_});
  return shard;
}

}  // namespace shardline::testing
