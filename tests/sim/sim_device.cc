#include "tests/sim/sim_device.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/failure.h"
#include "base/version.h"
#include "tests/sim/checker.h"
#include "tests/sim/hash_model.h"

namespace shardline::sim {
namespace {

constexpr SimTime kJobMin = 50 * kMicrosecond;
constexpr SimTime kJobMax = 400 * kMicrosecond;

}  // namespace

SimDevice::SimDevice(SimProcess* owner, LayerRange layers, int32_t pages_total)
    : owner_(owner),
      layers_(layers),
      pages_total_(pages_total),
      cells_(static_cast<size_t>(layers.count() * pages_total * kPageTokens), 0) {}

void SimDevice::Submit(ComputeJob job, std::function<void(const ComputeJob&)> before, Done done) {
  queue_.push_back({.job = std::move(job), .before = std::move(before), .done = std::move(done)});
  if (queue_.size() == 1) Begin();
}

void SimDevice::Begin() {
  if (running_ || queue_.empty()) return;
  ++jobs_started_;
  running_ = true;
  SimContext& context = owner_->context();
  const SimTime takes = context.rng.Between(kJobMin, kJobMax) * slowness_;
  context.queue.At(context.queue.now() + takes, owner_, [this] {
    running_ = false;
    if (!hung_) End();
  });
}

void SimDevice::Unhang() {
  if (!std::exchange(hung_, false) || running_ || queue_.empty()) return;
  SimContext& context = owner_->context();
  running_ = true;
  context.queue.At(context.queue.now(), owner_, [this] {
    running_ = false;
    if (!hung_) End();
  });
}

void SimDevice::End() {
  if (queue_.empty()) return;
  Queued ended = std::move(queue_.front());
  queue_.pop_front();
  ended.before(ended.job);
  ComputeDone done = Run(ended.job);
  ++jobs_done_;
  Begin();
  ended.done(ended.job, std::move(done));
}

ComputeDone SimDevice::Run(const ComputeJob& job) {
  ComputeDone done{.id = job.id, .compute_time = absl::Microseconds(200)};
  if (lost_ > 0) {
    --lost_;
    done.status = MakeFailure(FailureKind::kDeviceLost, "the device fell off the bus");
    return done;
  }
  if (job.kind == JobKind::kLayers) {
    RunLayers(job, done);
  } else {
    RunFinish(job, done);
  }
  return done;
}

uint32_t* SimDevice::Cells(int32_t layer, int32_t page) {
  SL_CHECK(page >= 0 && page < pages_total_);
  const int32_t row = (layer - layers_.begin) * pages_total_ + page;
  return &cells_[static_cast<size_t>(row) * kPageTokens];
}

void SimDevice::RunLayers(const ComputeJob& job, ComputeDone& done) {
  size_t row_count = 0;
  for (const JobSlice& slice : job.slices) row_count += static_cast<size_t>(slice.token_count);
  if (misshapen_ > 0) {
    --misshapen_;
    ++row_count;
  }
  const std::shared_ptr<Buffer> hidden = Buffer::Allocate(row_count * kHiddenDim * sizeof(float));
  const std::span<float> out = hidden->floats();
  size_t row = 0;
  for (const JobSlice& slice : job.slices) {
    for (int32_t i = 0; i < slice.token_count; ++i, ++row) {
      const int32_t position = slice.position + i;
      uint32_t h = job.hidden == nullptr ? Embed(job.tokens.at(row))
                                         : static_cast<uint32_t>(job.hidden->floats()[row]);
      for (int32_t layer = layers_.begin; layer < layers_.end; ++layer) {
        const int32_t page = slice.pages[static_cast<size_t>(position / kPageTokens)];
        uint32_t& cell = Cells(layer, page)[position % kPageTokens];
        if (i >= slice.kept_rows) cell = h;  // Else it is shared, and holds the same already.
        if (cell != h) owner_->context().checker->OnOtherCell(slice.key, position);
        h = MixCell(static_cast<uint32_t>(layer), h);
        for (int32_t first = 0; first <= position; first += kPageTokens) {
          const uint32_t* cells =
              Cells(layer, slice.pages[static_cast<size_t>(first / kPageTokens)]);
          const int32_t count = std::min(kPageTokens, position + 1 - first);
          for (int32_t p = 0; p < count; ++p) h = MixCell(h, cells[p]);
        }
      }
      out[row] = static_cast<float>(h);
    }
    done.slice_status.push_back(absl::OkStatus());
    if (non_finite_ > 0) {
      --non_finite_;
      out[row - 1] = std::numeric_limits<float>::quiet_NaN();
      done.slice_status.back() =
          MakeFailure(FailureKind::kNonFinite, "the hidden state is not finite");
    }
  }
  done.hidden = hidden;
}

void SimDevice::RunFinish(const ComputeJob& job, ComputeDone& done) {
  for (const SampleTarget& target : job.samples) {
    logits_.resize((1 + target.drafts.size()) * kVocabSize);
    for (size_t i = 0; i <= target.drafts.size(); ++i) {
      const float value = job.hidden->floats()[static_cast<size_t>(target.row) + i];
      const auto logits = std::span(logits_).subspan(i * kVocabSize, kVocabSize);
      if (value == value) {
        FillLogits(static_cast<uint32_t>(value), logits);
      } else {
        std::fill(logits.begin(), logits.end(), value);
      }
    }
    DrawnTokens drawn = target.sampler->SampleInTurn(logits_, target.drafts, target.index);
    done.samples.push_back({.key = target.key,
                            .status = std::move(drawn.status),
                            .tokens = std::move(drawn.tokens),
                            .finished = drawn.finished});
  }
  if (misshapen_ > 0) {
    --misshapen_;
    done.samples.pop_back();
  }
}

}  // namespace shardline::sim
