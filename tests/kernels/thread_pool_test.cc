#include "kernels/thread_pool.h"

#include <immintrin.h>

#include <atomic>
#include <climits>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/cpu_quota.h"
#include "kernels/flush_denormals.h"

namespace shardline {
namespace {

TEST(ThreadPool, EveryTaskRunsOnceInEveryFork) {
  ThreadPool pool({.threads = 2});
  for (int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    for (int fork = 0; fork < 200; ++fork) {
      std::vector<int> runs(static_cast<size_t>(count));  // Not atomic: one writer each, joined.
      pool.ParallelFor(count, [&](int64_t task) { ++runs[static_cast<size_t>(task)]; });
      for (int64_t task = 0; task < count; ++task) ASSERT_EQ(runs[static_cast<size_t>(task)], 1);
    }
  }
}

TEST(ThreadPool, ForksAfterTheWorkersParkedRunToo) {
  ThreadPool pool({.threads = 2, .spin = absl::ZeroDuration()});
  int64_t sum = 0;
  for (int fork = 0; fork < 2000; ++fork) {
    std::vector<int64_t> out(5);
    pool.ParallelFor(5, [&](int64_t task) { out[static_cast<size_t>(task)] = task + fork; });
    for (int64_t value : out) sum += value;
  }
  EXPECT_EQ(sum, 2000 * 10 + 5 * (1999 * 2000 / 2));
}

TEST(ThreadPool, WorkersShareTheTasksOfOneFork) {
  ThreadPool pool({.threads = 2});
  if (pool.thread_count() < 2) GTEST_SKIP() << "SKIPPED, NOT CHECKED: one usable CPU";
  // Each of the two tasks waits for the other: they can only end on two threads.
  absl::Notification first, second;
  pool.ParallelFor(2, [&](int64_t task) {
    (task == 0 ? first : second).Notify();
    (task == 0 ? second : first).WaitForNotification();
  });
  EXPECT_TRUE(first.HasBeenNotified());
}

TEST(ThreadPool, AForkReturnsOnlyWhenTheLastTaskHas) {
  ThreadPool pool({.threads = 2});
  if (pool.thread_count() < 2) GTEST_SKIP() << "SKIPPED, NOT CHECKED: one usable CPU";
  const std::thread::id caller = std::this_thread::get_id();
  for (int fork = 0; fork < 50; ++fork) {
    std::atomic<bool> worker_started = false, caller_done = false, worker_done = false;
    pool.ParallelFor(2, [&](int64_t) {
      if (std::this_thread::get_id() == caller) {
        while (!worker_started.load()) std::this_thread::yield();
        caller_done = true;
        return;
      }
      worker_started = true;
      while (!caller_done.load()) std::this_thread::yield();
      for (int i = 0; i < 10000; ++i) _mm_pause();  // Longer than the caller spins.
      worker_done = true;
    });
    ASSERT_TRUE(worker_done.load()) << "fork " << fork;
  }
}

TEST(ThreadPool, ALateWorkerIsNotWaitedFor) {
  ThreadPool pool({.threads = 2});
  if (pool.thread_count() < 2) GTEST_SKIP() << "SKIPPED, NOT CHECKED: one usable CPU";
  // The worker is held inside a task of fork one until this thread has run all the others itself.
  std::atomic<int> by_caller = 0;
  absl::Notification others_done;
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> worker_holds_one = false;
  pool.ParallelFor(100, [&](int64_t) {
    if (std::this_thread::get_id() != caller) {
      if (!worker_holds_one.exchange(true)) others_done.WaitForNotification();
      return;
    }
    while (!worker_holds_one.load()) std::this_thread::yield();
    if (++by_caller == 99) others_done.Notify();
  });
  EXPECT_EQ(by_caller.load(), 99);
}

TEST(ThreadPool, NoMoreWorkersThanTheProcessMayUse) {
  EXPECT_LE(ThreadPool({.threads = 10000}).thread_count(), UsableCpuCount());
  EXPECT_EQ(ThreadPool({.threads = 1}).thread_count(), 1);
  EXPECT_GE(UsableCpuCount(), 1);
}

TEST(ThreadPool, DenormalsAreZeroInEveryTaskAndTheCallersModeComesBack) {
  ThreadPool pool({.threads = 2});
  const unsigned before = _mm_getcsr();
  volatile float tiny = 1e-39f;
  std::vector<float> doubled(2, -1.0f);
  std::atomic<int> waiting = pool.thread_count() < 2 ? 0 : 2;  // So that either thread runs one.
  pool.ParallelFor(2, [&](int64_t task) {
    --waiting;
    while (waiting.load() > 0) std::this_thread::yield();
    doubled[static_cast<size_t>(task)] = tiny * 2.0f;
  });
  for (float value : doubled) EXPECT_EQ(value, 0.0f);
  EXPECT_EQ(_mm_getcsr() & 0x8040u, before & 0x8040u);
  const float kept = tiny * 2.0f;
  EXPECT_GT(kept, 0.0f);
}

// A made-up control group tree.
class CpuQuotaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::string(::testing::TempDir()) + "/cgroup_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(CpuQuotaTest, NothingLimitsAProcessWithoutQuota) {
  EXPECT_EQ(CgroupCpuLimit("0::/user\n", root_), INT_MAX);
  Write("/user/cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupCpuLimit("0::/user\n", root_), INT_MAX);
  EXPECT_EQ(CgroupCpuLimit("", root_), INT_MAX);
  EXPECT_EQ(CgroupCpuLimit("garbage\n::\n0:\n", root_), INT_MAX);
}

TEST_F(CpuQuotaTest, TheTightestAncestorCounts) {
  Write("/a/b/cpu.max", "800000 100000\n");
  Write("/a/cpu.max", "300000 100000\n");
  EXPECT_EQ(CgroupCpuLimit("0::/a/b\n", root_), 3);
  EXPECT_EQ(CgroupCpuLimit("0::/a/b/c/d\n", root_), 3);
}

TEST_F(CpuQuotaTest, AContainersOwnRootCountsWhenThePathIsTheHosts) {
  Write("/cpu.max", "200000 100000\n");
  EXPECT_EQ(CgroupCpuLimit("0::/host/path\n", root_), 2);
}

TEST_F(CpuQuotaTest, AFractionRoundsDownButNeverToNothing) {
  Write("/cpu.max", "250000 100000\n");
  EXPECT_EQ(CgroupCpuLimit("0::/\n", root_), 2);
  Write("/cpu.max", "50000 100000\n");
  EXPECT_EQ(CgroupCpuLimit("0::/\n", root_), 1);
}

TEST_F(CpuQuotaTest, VersionOneIsReadWhereItIsMounted) {
  Write("/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  Write("/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuLimit("7:memory:/job\n4:cpu,cpuacct:/job\n", root_), 4);
  Write("/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(CgroupCpuLimit("4:cpu,cpuacct:/job\n", root_), INT_MAX);
  Write("/cpu/job/cpu.cfs_quota_us", "100000\n");
  Write("/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuLimit("4:cpu,cpuacct:/job\n", root_), 1);
}

TEST(ThreadPool, HintsLoseNoForkAndNoTask) {
  ThreadPool pool({.threads = 2});
  std::atomic<bool> stop = false;
  std::thread hinter([&] {
    while (!stop) pool.Expect();  // From any thread, with or without a fork to come.
  });
  std::atomic<int64_t> ran = 0;
  for (int fork = 0; fork < 3000; ++fork) {
    pool.ParallelFor(7, [&](int64_t) { ran.fetch_add(1, std::memory_order_relaxed); });
    if (fork % 3 == 0) pool.Rest();
  }
  stop = true;
  hinter.join();
  EXPECT_EQ(ran, 3000 * 7);
}

}  // namespace
}  // namespace shardline
