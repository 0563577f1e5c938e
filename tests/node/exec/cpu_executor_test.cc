#include "node/exec/cpu_executor.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/ops_fixture.h"
#include "tests/node/exec/pipeline.h"
#include "tests/support/tiny_llama.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::FreshDirectory;
using ::shardline::testing::IsOk;
using ::shardline::testing::LoadShards;
using ::shardline::testing::MakeTinyLlama;
using ::shardline::testing::Pipeline;
using ::shardline::testing::Shards;

constexpr int32_t kPages = 8;

// A two-layer model on one executor, or its second layer alone.
class CpuExecutorTest : public ::testing::Test {
 protected:
  void Start(std::vector<LayerRange> ranges, size_t shard, int32_t jobs_max = 8) {
    shards_ = LoadShards(MakeTinyLlama(FreshDirectory(), {.layers = 2}), std::move(ranges));
    weights_ = &shards_[shard];
    kv_ = *KvStore::Create(weights_->hp, static_cast<int32_t>(weights_->layers.size()), kPages);
    executor_ = std::make_unique<CpuExecutor>(
        *LlamaForward::Create(weights_, kv_.get(), *CpuKernels(), {}, {}), SystemClock(),
        CpuExecutorOptions{.jobs_max = jobs_max});
  }

  static StepKey Key(uint64_t session) {
    return {.attempt = {.session = SessionId(session), .epoch = Epoch(1)}, .step = StepIndex(0)};
  }

  static ComputeJob Layers(std::vector<JobSlice> slices, std::vector<int32_t> tokens) {
    return {.id = 7, .slices = std::move(slices), .tokens = std::move(tokens)};
  }

  ComputeDone Run(ComputeJob job) {
    ComputeDone result;
    absl::Notification finished;
    const absl::Status status = executor_->Submit(std::move(job), [&](ComputeDone done) {
      result = std::move(done);
      finished.Notify();
    });
    EXPECT_THAT(status, IsOk());
    if (status.ok()) finished.WaitForNotification();
    return result;
  }

  Shards shards_;
  const ShardWeights* weights_ = nullptr;
  std::unique_ptr<KvStore> kv_;
  std::unique_ptr<CpuExecutor> executor_;
};

TEST_F(CpuExecutorTest, ATokenGoesThroughLayersAndFinish) {
  Start({}, 0);
  const std::vector<int32_t> tokens = {5, 9, 2, 7};
  Pipeline pipeline(shards_, {.kernels = *CpuKernels()});
  const std::vector<float> logits = pipeline.Run({{0, tokens}});
  const auto last = logits.end() - weights_->hp.vocab_size;
  const int32_t want = static_cast<int32_t>(std::max_element(last, logits.end()) - last);

  const ComputeDone layers = Run(Layers({{.key = Key(1), .token_count = 4, .pages = {3}}}, tokens));
  ASSERT_THAT(layers.status, IsOk());
  EXPECT_EQ(layers.id, 7u);
  EXPECT_GT(layers.compute_time, absl::ZeroDuration());
  EXPECT_THAT(layers.slice_status, ::testing::ElementsAre(IsOk()));
  ComputeJob finish{.id = 8, .kind = JobKind::kFinish, .hidden = layers.hidden};
  finish.samples.push_back(
      {.key = Key(1),
       .row = 3,
       .index = 0,
       .sampler = std::make_shared<Sampler>(SamplingParams{}, weights_->hp.vocab_size, tokens,
                                            std::span<const int32_t>{})});
  const ComputeDone done = Run(std::move(finish));
  ASSERT_THAT(done.status, IsOk());
  ASSERT_EQ(done.samples.size(), 1u);
  EXPECT_THAT(done.samples[0].status, IsOk());
  EXPECT_EQ(done.samples[0].tokens[0].token, want);
  EXPECT_EQ(executor_->progress().jobs_done, 2u);
  EXPECT_EQ(executor_->progress().rows_done, 4u);
}

TEST_F(CpuExecutorTest, DraftsAreDrawnInTurnFromTheRowsBehindTheirTarget) {
  Start({}, 0);
  const std::vector<int32_t> tokens = {5, 9, 2, 7, 1, 8};
  const ComputeDone layers = Run(Layers({{.key = Key(1), .token_count = 6, .pages = {3}}}, tokens));
  ASSERT_THAT(layers.status, IsOk());
  const auto target = [&](int32_t row, std::vector<int32_t> drafts) {
    return SampleTarget{.key = Key(1),
                        .row = row,
                        .index = static_cast<uint64_t>(row),
                        .drafts = std::move(drafts),
                        .sampler = std::make_shared<Sampler>(SamplingParams{.logits_digest = true},
                                                             weights_->hp.vocab_size, tokens,
                                                             std::span<const int32_t>{})};
  };
  ComputeJob alone{.id = 8, .kind = JobKind::kFinish, .hidden = layers.hidden};
  for (int32_t row = 0; row < 6; ++row) alone.samples.push_back(target(row, {}));
  const ComputeDone want = Run(std::move(alone));
  const auto token = [&](size_t row) { return want.samples[row].tokens[0].token; };

  ComputeJob drafted{.id = 9, .kind = JobKind::kFinish, .hidden = layers.hidden};
  const int32_t wrong = token(2) == 0 ? 1 : 0;
  drafted.samples.push_back(target(0, {token(0), token(1), wrong, token(3)}));
  drafted.samples.push_back(target(5, {}));
  const ComputeDone done = Run(std::move(drafted));
  ASSERT_THAT(done.status, IsOk());
  ASSERT_EQ(done.samples.size(), 2u);
  ASSERT_EQ(done.samples[0].tokens.size(), 3u);
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(done.samples[0].tokens[row].token, token(row));
    EXPECT_EQ(done.samples[0].tokens[row].logits_digest, want.samples[row].tokens[0].logits_digest);
  }
  EXPECT_EQ(done.samples[1].tokens[0].token, token(5));

  for (const SampleTarget& bad : {target(4, {1, 2}), target(0, std::vector<int32_t>(16, 1))}) {
    ComputeJob job{.id = 10, .kind = JobKind::kFinish, .hidden = layers.hidden};
    job.samples.push_back(bad);
    EXPECT_THAT(Run(std::move(job)).status, FailsWith(FailureKind::kMalformedBundle));
  }
}

TEST_F(CpuExecutorTest, ANonFiniteRowFailsItsSliceAloneAndNamesTheLayers) {
  Start({{0, 1}, {1, 2}}, 1);
  const size_t dim = static_cast<size_t>(weights_->hp.hidden_dim);
  const std::vector<float> good = RandomFloats(3 * dim, 1.0f, 1);
  const auto run = [&](float poison) {
    std::shared_ptr<Buffer> hidden = Buffer::Allocate(3 * dim * sizeof(float));
    std::copy(good.begin(), good.end(), hidden->floats().begin());
    if (poison != 0) hidden->floats()[dim + 5] = poison;
    ComputeJob job = Layers({{.key = Key(1), .token_count = 1, .pages = {0}},
                             {.key = Key(2), .token_count = 1, .pages = {1}},
                             {.key = Key(3), .token_count = 1, .pages = {2}}},
                            {});
    job.hidden = hidden;
    return Run(std::move(job));
  };
  const ComputeDone clean = run(0);
  const ComputeDone poisoned = run(std::numeric_limits<float>::quiet_NaN());
  ASSERT_THAT(poisoned.status, IsOk());
  ASSERT_EQ(poisoned.slice_status.size(), 3u);
  EXPECT_THAT(poisoned.slice_status[0], IsOk());
  EXPECT_THAT(poisoned.slice_status[1], FailsWith(FailureKind::kNonFinite));
  EXPECT_EQ(FailureDetailOf(poisoned.slice_status[1]).layers, (LayerRange{1, 2}));
  EXPECT_THAT(poisoned.slice_status[2], IsOk());
  const auto row = [dim](const ComputeDone& done, size_t i) {
    const std::span<const float> all = done.hidden->floats();
    return std::vector<float>(all.begin() + i * dim, all.begin() + (i + 1) * dim);
  };
  EXPECT_TRUE(SameBits(row(poisoned, 0), row(clean, 0)));
  EXPECT_TRUE(SameBits(row(poisoned, 2), row(clean, 2)));
}

TEST_F(CpuExecutorTest, AJobThatMakesNoSenseIsAnsweredAndTheNextOneRuns) {
  Start({}, 0);
  const JobSlice good{.key = Key(1), .token_count = 1, .pages = {0}};
  JobSlice too_few_pages = good;
  too_few_pages.position = 16;
  JobSlice foreign_page = good;
  foreign_page.pages = {kPages};
  for (ComputeJob& job : std::vector<ComputeJob>{
           Layers({too_few_pages}, {1}), Layers({foreign_page}, {1}), Layers({good}, {1, 2})}) {
    EXPECT_THAT(Run(job).status, FailsWith(FailureKind::kMalformedBundle));
  }
  EXPECT_THAT(Run(Layers({good}, {weights_->hp.vocab_size})).status,
              FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(Run(Layers({good}, {1})).status, IsOk());
}

TEST_F(CpuExecutorTest, AFullQueueRefusesAndShutdownAnswersWhatWaits) {
  Start({}, 0, /*jobs_max=*/2);
  const JobSlice slice{.key = Key(1), .token_count = 1, .pages = {0}};
  absl::Notification running;
  absl::Notification release;
  ASSERT_THAT(executor_->Submit(Layers({slice}, {1}),
                                [&](ComputeDone) {
                                  running.Notify();
                                  release.WaitForNotification();
                                }),
              IsOk());
  running.WaitForNotification();  // The device thread is held: the queue is empty and stays so.
  std::vector<absl::Status> waiting;
  for (int i = 0; i < 2; ++i) {
    ASSERT_THAT(executor_->Submit(Layers({slice}, {1}),
                                  [&](ComputeDone done) { waiting.push_back(done.status); }),
                IsOk());
  }
  EXPECT_THAT(executor_->Submit(Layers({slice}, {1}), [](ComputeDone) { FAIL(); }),
              FailsWith(FailureKind::kOverloaded));
  EXPECT_EQ(executor_->progress().jobs_submitted, 3u);
  EXPECT_EQ(executor_->progress().jobs_started, 1u);

  // The release comes from a task of its own, once the stop is certain to be seen.
  std::thread stopper([&] { executor_->Shutdown(); });
  while (FailureKindOf(executor_->Submit(Layers({slice}, {1}), [](ComputeDone) { FAIL(); })) !=
         FailureKind::kCancelled) {
  }
  release.Notify();
  stopper.join();
  EXPECT_THAT(waiting, ::testing::Each(FailsWith(FailureKind::kCancelled)));
  EXPECT_EQ(waiting.size(), 2u);
  EXPECT_EQ(executor_->progress().jobs_done, 3u);
}

}  // namespace
}  // namespace shardline
