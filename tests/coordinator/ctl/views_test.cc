// What operators see, letter by letter, from fixed answers.

#include "coordinator/ctl/views.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

v1::NodeList TwoNodes() {
  v1::NodeList nodes;
  v1::NodeSummary& a = *nodes.add_nodes();
  a.set_node_id("node-1");
  a.set_state(v1::NODE_STATE_READY);
  a.set_model("tinyllama-1.1b");
  a.mutable_layers()->set_end(11);
  a.set_memory_used_bytes(uint64_t{3} << 30);
  a.mutable_capacity()->set_memory_bytes(uint64_t{8} << 30);
  a.mutable_capacity()->set_backend("cpu");
  a.mutable_capacity()->set_device("avx2 x4");
  a.set_kv_pages_total(128);
  a.set_kv_pages_free(120);
  a.set_attempts_open(2);
  a.set_last_beat_ms(140);
  a.set_age_ms(3 * 24 * 3600 * 1000LL);
  a.set_incarnation(7);
  a.set_version("0.1.0");
  a.set_address("10.0.0.11:7071");
  v1::NodeSummary& b = *nodes.add_nodes();
  b.set_node_id("node-2");
  b.set_state(v1::NODE_STATE_LOST);
  b.mutable_capacity()->set_memory_bytes(uint64_t{512} << 20);
  b.set_last_beat_ms(12'000);
  b.set_age_ms(180'000);
  b.set_reason("heartbeat lost");
  return nodes;
}

v1::ModelList TwoModels() {
  v1::ModelList models;
  v1::ModelSummary& a = *models.add_models();
  a.set_name("tinyllama-1.1b");
  a.set_model_id("sha256:9f2c");
  a.set_architecture("llama");
  a.set_quantisation("q8_0");
  a.set_bytes(uint64_t{1180} << 20);
  a.set_layers(22);
  a.set_context_tokens_max(2048);
  a.set_state(v1::MODEL_STATE_READY);
  a.set_plan_epoch(42);
  v1::ModelSummary& b = *models.add_models();
  b.set_name("qwen3-0.6b");
  b.set_layers(28);
  b.set_state(v1::MODEL_STATE_DEGRADED);
  b.set_reason("layers 21-27 on node-4: heartbeat lost 1.2 s ago");
  return models;
}

void AddShard(v1::ShardList* shards, const char* model, const char* node, int begin, int end,
              v1::ShardState state) {
  v1::ShardSummary& shard = *shards->add_shards();
  shard.set_model(model);
  shard.set_node_id(node);
  shard.mutable_layers()->set_begin(begin);
  shard.mutable_layers()->set_end(end);
  shard.set_is_head(begin == 0);
  shard.set_state(state);
  shard.set_bytes(1000);
}

TEST(Views, NodesAreATable) {
  EXPECT_EQ(NodeListView(TwoNodes(), {}),
            "NAME    STATE  MODEL           LAYERS  MEM USED/CAP     KV FREE  OPEN  BEAT   AGE\n"
            "node-1  ready  tinyllama-1.1b  0-10    3.0 GiB/8.0 GiB  120/128  2     140ms  3d\n"
            "node-2  lost   -               -       0 B/512 MiB      -        0     12s    3m\n");
}

TEST(Views, WideNodesSayWhereAndWhy) {
  const std::string text =
      NodeListView(TwoNodes(), {.format = OutputFormat::kWide, .headers = false});
  EXPECT_EQ(text,
            "node-1  ready  tinyllama-1.1b  0-10  3.0 GiB/8.0 GiB  120/128  2  140ms  3d  "
            "cpu avx2 x4  7  0.1.0  10.0.0.11:7071  -\n"
            "node-2  lost   -               -     0 B/512 MiB      -        0  12s    3m  "
            "-            0  -      -               heartbeat lost\n");
}

TEST(Views, NamesAreOneALine) {
  EXPECT_EQ(NodeListView(TwoNodes(), {.format = OutputFormat::kName}), "node-1\nnode-2\n");
  EXPECT_EQ(ModelListView(TwoModels(), {.format = OutputFormat::kName}),
            "tinyllama-1.1b\nqwen3-0.6b\n");
}

TEST(Views, ModelsSayWhyTheyAreNotReady) {
  EXPECT_EQ(ModelListView(TwoModels(), {}),
            "MODEL           STATE     ARCH   QUANT  SIZE     LAYERS  CONTEXT  REASON\n"
            "tinyllama-1.1b  ready     llama  q8_0   1.2 GiB  22      2048     -\n"
            "qwen3-0.6b      degraded  -      -      -        28      -        "
            "layers 21-27 on node-4: heartbeat lost 1.2 s ago\n");
}

TEST(Views, StatusIsOnePage) {
  v1::ClusterStatus status;
  status.set_version("0.1.0");
  status.set_term(7);
  status.set_plan_epoch(42);
  status.set_nodes_ready(1);
  status.set_nodes_lost(1);
  status.set_sessions_running(6);
  *status.add_models() = TwoModels().models(1);
  status.add_problems("qwen3-0.6b: layers 21-27 on node-4: heartbeat lost 1.2 s ago");
  EXPECT_EQ(StatusView(status, TwoNodes(), "127.0.0.1:7070", {}),
            "CLUSTER   127.0.0.1:7070   not healthy   version 0.1.0   term 7   plan 42\n"
            "NODES     1 ready   1 lost: node-2 (heartbeat lost)\n"
            "SESSIONS  6 running\n"
            "MODEL       STATE     ARCH  QUANT  SIZE  LAYERS  CONTEXT\n"
            "qwen3-0.6b  degraded  -     -      -     28      -\n"
            "PROBLEMS\n"
            "  qwen3-0.6b: layers 21-27 on node-4: heartbeat lost 1.2 s ago\n"
            "  hint: a node that starts again loads its shard by itself; see `shardctl node list "
            "-o wide`\n");
}

TEST(Views, ShardsAreDrawnAsAMapOfLayers) {
  v1::ShardList shards;
  AddShard(&shards, "tinyllama-1.1b", "node-2", 11, 22, v1::SHARD_STATE_LOADED);
  AddShard(&shards, "tinyllama-1.1b", "node-1", 0, 11, v1::SHARD_STATE_LOADED);
  shards.mutable_shards(1)->set_bytes(40'789'606);
  EXPECT_EQ(ShardListView(shards, TwoModels(), {.columns = 60}),
            "MODEL           0         5         10        15        20\n"
            "tinyllama-1.1b  [node-1 █████████████][node-2 █████████████]\n"
            "\n"
            "node-1  layers 0-10   head   38.9 MiB  loaded\n"
            "node-2  layers 11-21  stage  1000 B    loaded\n");
}

TEST(Views, AShardTooNarrowForItsNameIsNamedBelow) {
  v1::ShardList shards;
  AddShard(&shards, "qwen3-0.6b", "node-c", 0, 1, v1::SHARD_STATE_LOADED);
  AddShard(&shards, "qwen3-0.6b", "node-a", 1, 28, v1::SHARD_STATE_LOADED);
  EXPECT_EQ(ShardListView(shards, TwoModels(), {.columns = 68}),
            "MODEL       0         5         10        15        20        25\n"
            "qwen3-0.6b  ██[node-a █████████████████████████████████████████████]\n"
            "\n"
            "node-c  layers 0-0   head   1000 B  loaded\n"
            "node-a  layers 1-27  stage  1000 B  loaded\n");
}

TEST(Views, TwoModelsAreToldApartBelowTheMap) {
  v1::ShardList shards;
  AddShard(&shards, "qwen3-0.6b", "node-1", 0, 28, v1::SHARD_STATE_FAILED);
  AddShard(&shards, "tinyllama-1.1b", "node-2", 0, 22, v1::SHARD_STATE_LOADED);
  const std::string text = ShardListView(shards, TwoModels(), {.columns = 68});
  EXPECT_THAT(text,
              ::testing::HasSubstr("\n\n"
                                   "node-1  layers 0-27  head  1000 B  failed  qwen3-0.6b\n"
                                   "node-2  layers 0-21  head  1000 B  loaded  tinyllama-1.1b\n"));
}

TEST(Views, WithoutShardsThereIsNoMap) {
  EXPECT_EQ(ShardListView({}, TwoModels(), {}), "no shard is placed\n");
  EXPECT_EQ(ShardListView({}, TwoModels(), {.headers = false}), "");
}

TEST(Views, TheMapShowsWhatIsLostLoadingOrMissing) {
  v1::ShardList shards;
  AddShard(&shards, "qwen3-0.6b", "node-1", 0, 7, v1::SHARD_STATE_LOADED);
  AddShard(&shards, "qwen3-0.6b", "node-2", 7, 14, v1::SHARD_STATE_LOADING);
  shards.mutable_shards(1)->set_bytes_done(500);
  AddShard(&shards, "qwen3-0.6b", "node-3", 14, 21, v1::SHARD_STATE_UNSPECIFIED);
  shards.mutable_shards(2)->set_node_lost(true);
  EXPECT_EQ(ShardListView(shards, TwoModels(), {.columns = 68}),
            "MODEL       0         5         10        15        20        25\n"
            "qwen3-0.6b  [node-1 █████][node-2 ██▒▒▒][node-3 ░░░░░]··············\n"
            "▒ loading   ░ node lost   · no shard\n"
            "\n"
            "node-1  layers 0-6    head   1000 B  loaded\n"
            "node-2  layers 7-13   stage  1000 B  loading 50%\n"
            "node-3  layers 14-20  stage  1000 B  node lost\n");
}

TEST(Views, ReplicasAreFurtherLinesOfTheMap) {
  v1::ShardList shards;
  AddShard(&shards, "qwen3-0.6b", "node-1", 0, 14, v1::SHARD_STATE_LOADED);
  AddShard(&shards, "qwen3-0.6b", "node-3", 0, 14, v1::SHARD_STATE_LOADED);
  AddShard(&shards, "qwen3-0.6b", "node-2", 14, 28, v1::SHARD_STATE_LOADED);
  EXPECT_EQ(ShardListView(shards, TwoModels(), {.columns = 52}),
            "MODEL       0      5      10     15     20     25\n"
            "qwen3-0.6b  [node-1 ███████████][node-2 ███████████]\n"
            "            [node-3 ███████████]····················\n"
            "· no shard\n"
            "\n"
            "node-1  layers 0-13   head   1000 B  loaded\n"
            "node-3  layers 0-13   head   1000 B  loaded\n"
            "node-2  layers 14-27  stage  1000 B  loaded\n");
}

TEST(Views, TheMapFitsTheTerminal) {
  v1::ShardList shards;
  AddShard(&shards, "m", "node-with-a-long-name", 0, 40, v1::SHARD_STATE_LOADED);
  AddShard(&shards, "m", "n2", 40, 80, v1::SHARD_STATE_LOADED);
  for (const int columns : {40, 80, 200}) {
    std::string text = ShardListView(shards, {}, {.columns = columns});
    text.resize(text.find("\n\n") + 1);  // The lines below it are as wide as their names.
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      int width = 0;
      for (size_t i = begin; i < end; ++i) width += (text[i] & 0xC0) != 0x80 ? 1 : 0;
      EXPECT_LE(width, columns) << text;
      begin = end + 1;
    }
  }
}

TEST(Views, JsonIsAKindWithItems) {
  v1::NodeList nodes;
  *nodes.add_nodes() = TwoNodes().nodes(1);
  EXPECT_EQ(NodeListView(nodes, {.format = OutputFormat::kJson}), R"({
  "apiVersion": "shardline/v1",
  "kind": "NodeList",
  "items": [
    {
      "nodeId": "node-2",
      "state": "NODE_STATE_LOST",
      "incarnation": "0",
      "address": "",
      "version": "",
      "capacity": {
        "memoryBytes": "536870912",
        "threads": 0,
        "readBytesPerS": 0,
        "int8OpsPerS": 0,
        "backend": "",
        "device": "",
        "machine": "",
        "cpus": []
      },
      "memoryUsedBytes": "0",
      "model": "",
      "attemptsOpen": 0,
      "kvPagesTotal": 0,
      "kvPagesFree": 0,
      "lastBeatMs": "12000",
      "ageMs": "180000",
      "reason": "heartbeat lost",
      "duty": "NODE_DUTY_UNSPECIFIED",
      "sessionsRunning": 0,
      "drainLeftMs": "0"
    }
  ]
}
)");
}

}  // namespace
}  // namespace shardline
