#include "node/loading_thread.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/mailbox.h"

namespace shardline {
namespace {

// Memory in the making: counts the shards that exist.
class CountedExecutor : public DeviceExecutor {
 public:
  explicit CountedExecutor(int* alive) : alive_(alive) { ++*alive_; }
  ~CountedExecutor() override {
    EXPECT_TRUE(shut_down_) << "freed while the device may be at work";
    --*alive_;
  }

  absl::Status Submit(ComputeJob, DoneCallback) override { return absl::OkStatus(); }
  void Rest() override {}
  ExecutorProgress progress() const override { return {}; }
  void Shutdown() override { shut_down_ = true; }

 private:
  int* const alive_;  // Touched on the loading thread only.
  bool shut_down_ = false;
};

class CountingLoader : public ShardLoader {
 public:
  ~CountingLoader() override { EXPECT_EQ(alive, 0) << "not freed"; }

  absl::StatusOr<LoadedShard> Load(const ShardOrder& order, const Progress& progress) override {
    if (order.model_name == "slow") {
      entered.Notify();
      go_on.WaitForNotification();
    }
    if (!progress(1, 2)) return MakeFailure(FailureKind::kCancelled, "not wanted any more");
    EXPECT_EQ(alive, 0) << "two shards in memory at once";
    LoadedShard shard;
    shard.executor = std::make_shared<CountedExecutor>(&alive);
    return shard;
  }

  int alive = 0;
  absl::Notification entered;
  absl::Notification go_on;
};

ShardOrder Named(const std::string& name) {
  ShardOrder order;
  order.model_name = name;
  return order;
}

struct Loaded {
  uint64_t ticket = 0;
  absl::StatusOr<LoadedShard> shard;
};

// A loading thread, and what came of its loads.
class Loading {
 public:
  Loaded Await() {
    std::optional<Loaded> loaded = loads_.Take(absl::Seconds(60));
    SL_CHECK(loaded.has_value());
    return *std::move(loaded);
  }

  CountingLoader loader;

 private:
  Mailbox<Loaded> loads_{16};

 public:
  LoadingThread thread{
      &loader, SystemClock(),
      LoadingEvents{.on_progress = [](uint64_t, uint64_t, uint64_t) {},
                    .on_loaded =
                        [this](uint64_t ticket, absl::StatusOr<LoadedShard> shard) {
                          EXPECT_TRUE(loads_.TryPost({ticket, std::move(shard)}));
                        }}};
};

TEST(LoadingThread, WhatIsGivenBackIsFreedBeforeTheNextLoad) {
  Loading loading;
  for (int i = 0; i < 100; ++i) {
    const uint64_t ticket = loading.thread.Load(Named("quick"));
    Loaded loaded = loading.Await();
    EXPECT_EQ(loaded.ticket, ticket);
    ASSERT_TRUE(loaded.shard.ok());
    loading.thread.Free(std::move(loaded.shard->executor));
  }
}

TEST(LoadingThread, TheNewestOrderStopsTheOneThatRunsAndReplacesTheOneThatWaits) {
  Loading loading;
  loading.thread.Load(Named("slow"));
  loading.loader.entered.WaitForNotification();
  for (int i = 0; i < 100; ++i) loading.thread.Load(Named("quick"));
  const uint64_t newest = loading.thread.Load(Named("newest"));
  loading.loader.go_on.Notify();
  Loaded loaded = loading.Await();
  EXPECT_EQ(loaded.ticket, newest);
  loading.thread.Free(std::move(loaded.shard->executor));
}

TEST(LoadingThread, ACancelledLoadTellsNobody) {
  Loading loading;
  loading.thread.Load(Named("slow"));
  loading.loader.entered.WaitForNotification();
  loading.thread.Cancel();
  loading.loader.go_on.Notify();
  const uint64_t next = loading.thread.Load(Named("quick"));
  Loaded loaded = loading.Await();
  EXPECT_EQ(loaded.ticket, next);
  loading.thread.Free(std::move(loaded.shard->executor));
}

}  // namespace
}  // namespace shardline
