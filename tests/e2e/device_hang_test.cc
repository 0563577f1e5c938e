// A device that hangs for ever: neither its clients nor the end of its process wait for it.

#include <signal.h>
#include <stdlib.h>

#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_llama.h"

namespace shardline::testing {
namespace {

TEST(DeviceHang, EveryClientIsToldOnceAndAProcessThatIsToStopStops) {
  setenv("SHARDLINE_EMULATED_STEP_US", "100", 1);  // The nodes inherit it.
  setenv("SHARDLINE_EMULATED_ROW_US", "10", 1);
  setenv("SHARDLINE_EMULATED_HIDDEN", "32", 1);
  setenv("SHARDLINE_EMULATED_HANG_AFTER", "200", 1);
  Cluster cluster(
      {.nodes = 1, .node_binary = "emulated-node", .node_arguments = {"--drain-timeout", "1s"}});
  v1::LoadModelRequest load;
  load.set_path(
      MakeTinyLlama(cluster.directory(),
                    {.layers = 2, .hidden = 32, .q_heads = 1, .kv_heads = 1, .context = 2048}));
  load.set_shards(1);
  load.set_sessions_max(8);
  ASSERT_THAT(cluster.LoadModel(load), IsOk());

  constexpr size_t kClients = 4;
  std::vector<Answer> answers(kClients);
  std::vector<std::thread> clients;
  absl::BlockingCounter streaming(kClients);
  for (Answer& answer : answers) {
    clients.emplace_back([&cluster, &answer, &streaming] {
      v1::GenerateRequest request;
      for (const int32_t id : {1, 2, 3}) request.mutable_tokens()->add_ids(id);
      request.set_new_tokens_max(1000);
      request.set_ignore_eos(true);
      request.set_deadline_ms(20'000);
      answer = cluster.Generate(request, [&streaming](int count) {
        if (count == 1) streaming.DecrementCount();
      });
    });
  }
  streaming.Wait();
  cluster.node(0).Signal(SIGTERM);
  EXPECT_EQ(cluster.node(0).Wait(absl::Seconds(60)), 1) << cluster.Logs();
  for (std::thread& client : clients) client.join();
  for (const Answer& answer : answers) {
    EXPECT_FALSE(answer.status.ok());
    EXPECT_FALSE(answer.end.has_value()) << "a failure told as an answer";
    EXPECT_LT(answer.tokens.size(), 1000U);
    EXPECT_THAT(FailureKindOf(answer.status),
                ::testing::AnyOf(FailureKind::kWorkerDeath, FailureKind::kDeadlineExceeded))
        << answer.status;
  }
  EXPECT_THAT(cluster.Logs(), ::testing::HasSubstr("something hangs and cannot be stopped"));
}

}  // namespace
}  // namespace shardline::testing
