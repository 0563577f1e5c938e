#include "node/exec/cpu_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "kernels/flush_denormals.h"
#include "kernels/thread_pool.h"

namespace shardline {
namespace {

// Rows whose logits are held at once.
constexpr int32_t kLogitsRows = 16;

int32_t RowsOf(const ComputeJob& job) {
  int32_t rows = 0;
  for (const JobSlice& slice : job.slices) rows += slice.token_count;
  return rows;
}

// What only a bug between our own cores can get wrong; still an answer, as a job is about many
// sessions.
absl::Status Malformed(const ComputeJob& job, const std::string& what) {
  return MakeFailure(FailureKind::kMalformedBundle, absl::StrCat("job ", job.id, ": ", what));
}

absl::Status CheckPages(const ComputeJob& job, int32_t pages_total) {
  for (const JobSlice& slice : job.slices) {
    const int64_t tokens = int64_t{slice.position} + slice.token_count;
    if (slice.position < 0 || slice.token_count <= 0 ||
        static_cast<int64_t>(slice.pages.size()) * kPageTokens < tokens) {
      return Malformed(job, absl::StrCat("session ", slice.key.attempt.session.value(), " has ",
                                         slice.pages.size(), " pages for ", tokens, " tokens"));
    }
    for (const int32_t page : slice.pages) {
      if (page < 0 || page >= pages_total) {
        return Malformed(job, absl::StrCat("page ", page, " is not one of ", pages_total));
      }
    }
  }
  return absl::OkStatus();
}

SampleResult Draw(const SampleTarget& target, std::span<float> logits) {
  DrawnTokens drawn = target.sampler->SampleInTurn(logits, target.drafts, target.index);
  return {.key = target.key,
          .status = std::move(drawn.status),
          .tokens = std::move(drawn.tokens),
          .finished = drawn.finished};
}

}  // namespace

CpuExecutor::CpuExecutor(std::unique_ptr<LlamaForward> forward, const Clock* clock,
                         const CpuExecutorOptions& options)
    : clock_(clock),
      options_(options),
      forward_(std::move(forward)),
      pool_(forward_->stream().pool),
      items_(static_cast<size_t>(options.jobs_max)) {
  const ShardWeights& weights = forward_->weights();
  if (weights.contents.head) {
    logits_.resize(static_cast<size_t>(kLogitsRows) * weights.hp.vocab_size);
  }
  forward_->StopOn(&stop_);
  thread_ = std::thread([this] { Loop(); });
}

CpuExecutor::~CpuExecutor() { Shutdown(); }

void CpuExecutor::Shutdown() {
  stop_.store(true, std::memory_order_relaxed);
  items_.Close();
  if (thread_.joinable()) thread_.join();
}

absl::Status CpuExecutor::Submit(ComputeJob job, DoneCallback done) {
  if (pool_ != nullptr) pool_->Expect();  // Its workers wake while the device thread does.
  if (items_.TryPost(Item{.job = std::move(job), .done = std::move(done)})) {
    jobs_submitted_.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  if (items_.closed()) return MakeFailure(FailureKind::kCancelled, "the executor is shut down");
  return MakeFailure(FailureKind::kOverloaded,
                     absl::StrCat("the executor's queue of ", options_.jobs_max, " jobs is full"));
}

void CpuExecutor::Rest() {
  if (pool_ != nullptr) pool_->Rest();
}

ExecutorProgress CpuExecutor::progress() const {
  return ExecutorProgress{.jobs_submitted = jobs_submitted_.load(std::memory_order_relaxed),
                          .jobs_started = jobs_started_.load(std::memory_order_relaxed),
                          .jobs_done = jobs_done_.load(std::memory_order_relaxed),
                          .rows_done = rows_done_.load(std::memory_order_relaxed)};
}

void CpuExecutor::Loop() {
  while (std::optional<Item> item = items_.Take()) {
    jobs_started_.fetch_add(1, std::memory_order_relaxed);
    ComputeDone done = Run(item->job);
    rows_done_.fetch_add(static_cast<uint64_t>(RowsOf(item->job)), std::memory_order_relaxed);
    jobs_done_.fetch_add(1, std::memory_order_relaxed);
    std::move(item->done)(std::move(done));
  }
}

ComputeDone CpuExecutor::Run(const ComputeJob& job) {
  const Instant begin = clock_->Now();
  ComputeDone done{.id = job.id};
  if (stop_.load(std::memory_order_relaxed)) {
    done.status = MakeFailure(FailureKind::kCancelled, "the executor is shutting down");
    return done;
  }
  done.status = job.kind == JobKind::kLayers ? RunLayers(job, done) : RunFinish(job, done);
  done.compute_time = clock_->Now() - begin;
  return done;
}

absl::Status CpuExecutor::RunLayers(const ComputeJob& job, ComputeDone& done) {
  const ShardWeights& weights = forward_->weights();
  const size_t rows = static_cast<size_t>(RowsOf(job));
  const size_t bytes = rows * static_cast<size_t>(weights.hp.hidden_dim) * sizeof(float);
  SL_RETURN_IF_ERROR(CheckPages(job, forward_->kv().pages_total()));
  const std::shared_ptr<Buffer> hidden = Buffer::Allocate(bytes);
  if (weights.contents.embedding) {
    if (job.tokens.size() != rows) {
      return Malformed(job, absl::StrCat(job.tokens.size(), " tokens for ", rows, " rows"));
    }
    SL_RETURN_IF_ERROR(forward_->Embed(job.tokens, hidden->floats().data()));
  } else {
    if (job.hidden == nullptr || job.hidden->size() != bytes) {
      return Malformed(job, absl::StrCat("hidden state of ", job.hidden ? job.hidden->size() : 0,
                                         " bytes for ", rows, " rows"));
    }
    std::memcpy(hidden->data(), job.hidden->data(), bytes);
  }
  slices_.clear();
  int32_t row = 0;
  for (const JobSlice& slice : job.slices) {
    slices_.push_back({.first_row = row,
                       .row_count = slice.token_count,
                       .position = slice.position,
                       .pages = slice.pages.data(),
                       .kept_rows = slice.kept_rows});
    row += slice.token_count;
  }
  SL_RETURN_IF_ERROR(forward_->RunLayers(slices_, hidden->floats().data()));
  for (const SequenceSlice& slice : slices_) {
    done.slice_status.push_back(
        CheckFinite(hidden->floats().data(), slice.first_row, slice.row_count));
  }
  done.hidden = hidden;
  return absl::OkStatus();
}

void CpuExecutor::ForEach(int64_t count, absl::FunctionRef<void(int64_t i)> body) {
  if (pool_ != nullptr) return pool_->ParallelFor(count, body);
  const ScopedFlushDenormals flush;  // As the pool's workers do.
  for (int64_t i = 0; i < count; ++i) body(i);
}

absl::Status CpuExecutor::CheckFinite(const float* hidden, int32_t begin, int32_t count) const {
  const ShardWeights& weights = forward_->weights();
  const int64_t dim = weights.hp.hidden_dim;
  const int64_t bad = forward_->kernels().first_non_finite_row(
      FiniteArgs{.x = hidden + begin * dim, .rows = count, .dim = dim, .x_stride = dim},
      forward_->stream());
  if (bad < 0) return absl::OkStatus();
  return MakeFailure(
      FailureDetail{.kind = FailureKind::kNonFinite, .layers = weights.contents.layers},
      absl::StrCat("row ", begin + bad, " is not finite after ",
                   weights.contents.layers.ToString()));
}

absl::Status CpuExecutor::RunFinish(const ComputeJob& job, ComputeDone& done) {
  const ShardWeights& weights = forward_->weights();
  const size_t row_bytes = static_cast<size_t>(weights.hp.hidden_dim) * sizeof(float);
  const size_t vocab = static_cast<size_t>(weights.hp.vocab_size);
  if (!weights.contents.head) return Malformed(job, "this shard has no head");
  const int64_t rows =
      job.hidden == nullptr ? 0 : static_cast<int64_t>(job.hidden->size() / row_bytes);
  for (const SampleTarget& target : job.samples) {
    const auto count = static_cast<int64_t>(1 + target.drafts.size());
    if (target.row < 0 || target.row + count > rows || target.sampler == nullptr) {
      return Malformed(job, absl::StrCat("no ", count, " rows from row ", target.row, " among ",
                                         rows, " to sample"));
    }
    if (count > kLogitsRows) {
      return Malformed(
          job, absl::StrCat(target.drafts.size(), " drafts to sample, at most ", kLogitsRows - 1));
    }
  }
  done.samples.resize(job.samples.size());
  for (size_t begin = 0; begin < job.samples.size();) {
    rows_.clear();
    firsts_.clear();
    size_t end = begin;
    while (end < job.samples.size() &&
           rows_.size() + 1 + job.samples[end].drafts.size() <= static_cast<size_t>(kLogitsRows)) {
      const SampleTarget& target = job.samples[end++];
      firsts_.push_back(rows_.size());
      for (size_t i = 0; i <= target.drafts.size(); ++i) {
        rows_.push_back(target.row + static_cast<int32_t>(i));
      }
    }
    SL_RETURN_IF_ERROR(forward_->Finish(job.hidden->floats().data(), rows_, logits_.data()));
    ForEach(static_cast<int64_t>(end - begin), [&](int64_t i) {
      const size_t at = begin + static_cast<size_t>(i);
      const size_t rows_drawn = 1 + job.samples[at].drafts.size();
      const std::span<float> logits =
          std::span(logits_).subspan(firsts_[static_cast<size_t>(i)] * vocab, rows_drawn * vocab);
      done.samples[at] = Draw(job.samples[at], logits);
    });
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace shardline
