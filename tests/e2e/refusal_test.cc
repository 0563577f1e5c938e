// What cannot work is refused with one clear line and the right exit code, and nothing else is
// harmed by it.

#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_llama.h"

namespace shardline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A command's complaint: one line on stderr that says everything, perhaps in further lines that
// are indented below it, and hints. What is said before is progress.
void ExpectOneClearLine(const CommandResult& result, int exit_code,
                        const std::vector<std::string>& names) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err << result.out;
  EXPECT_EQ(result.out, "");
  std::string complaint;
  int complaints = 0;
  for (const absl::string_view line : absl::StrSplit(result.err, '\n', absl::SkipEmpty())) {
    const bool begins =
        absl::StartsWith(line, "error: ") || absl::StartsWith(line, "shardline-node: ");
    complaints += begins ? 1 : 0;
    if (begins) {
      complaint = std::string(line);
    } else if (!complaint.empty() && absl::StartsWith(line, "       ")) {
      absl::StrAppend(&complaint, line);
    } else if (!complaint.empty()) {
      EXPECT_TRUE(absl::StartsWith(line, "hint:") || absl::StartsWith(line, "node:")) << result.err;
    }
  }
  EXPECT_EQ(complaints, 1) << result.err;
  for (const std::string& name : names) EXPECT_THAT(complaint, HasSubstr(name)) << result.err;
}

// The tiny model must still answer: what was refused did no harm.
void ExpectHealthy(Cluster& cluster, const std::string& model_path) {
  v1::LoadModelRequest request;
  request.set_path(model_path);
  request.set_name("healthy");
  ASSERT_THAT(cluster.LoadModel(request), IsOk());
  v1::GenerateRequest generate = Greedy("hello", 8);
  generate.set_model("healthy");
  const Answer answer = cluster.Generate(generate);
  EXPECT_THAT(answer.status, IsOk());
  EXPECT_EQ(answer.tokens.size(), 8u);
  ASSERT_THAT(cluster.UnloadModel("healthy"), IsOk());
}

// The distinct digests that a message shows, of a tensor or a file.
std::set<std::string> DigestsIn(const std::string& message) {
  std::set<std::string> digests;
  std::string run;
  for (const char c : message + " ") {
    if (absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
      run += c;
      continue;
    }
    if (run.size() == 32 || run.size() == 64) digests.insert(run);
    run.clear();
  }
  return digests;
}

TEST(RefusalTest, BadModelFilesAreNamedAndHarmNothing) {
  const std::string directory = FreshDirectory();
  Cluster cluster({.nodes = 2, .memory = "256MiB"});
  const std::string good = MakeTinyLlama(directory, {.name = "good"});
  v1::LoadModelRequest load;
  load.set_path(good);
  load.set_shards(1);
  ASSERT_THAT(cluster.LoadModel(load), IsOk());

  GgufWriter missing = TinyLlama({});
  missing.RemoveTensor("blk.1.attn_q.weight");
  GgufWriter unsupported = TinyLlama({});
  unsupported.tensor("blk.2.ffn_up.weight").type_id = 39;
  GgufWriter overflow = TinyLlama({});
  overflow.tensor("token_embd.weight").shape[1] = 4398046511105;
  std::string hostile("GGUF\x03\0\0\0", 8);
  AppendNumber<uint64_t>(hostile, 0x7FFFFFFFFFFFFFFF);
  AppendNumber<uint64_t>(hostile, 0);
  WriteBytes(directory + "/hostile.gguf", hostile);
  std::string cut = ReadBytes(good);
  cut.resize(cut.size() - 100);
  WriteBytes(directory + "/cut.gguf", cut);

  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {missing.WriteTo(directory + "/missing.gguf"), {"missing.gguf", "blk.1.attn_q.weight"}},
      {unsupported.WriteTo(directory + "/unsupported.gguf"),
       {"unsupported.gguf", "blk.2.ffn_up.weight", "39"}},
      {overflow.WriteTo(directory + "/overflow.gguf"),
       {"overflow.gguf", "token_embd.weight", "4398046511105"}},
      {directory + "/hostile.gguf", {"hostile.gguf", "tensor count", "24 bytes"}},
      {directory + "/cut.gguf", {"cut.gguf", "output_norm.weight", "bytes"}},
      {directory + "/nowhere.gguf", {"nowhere.gguf"}},
  };
  for (const auto& [path, names] : cases) {
    SCOPED_TRACE(path);
    const CommandResult result = cluster.Shardctl({"model", "load", path});
    ExpectOneClearLine(result, path.find("nowhere") == std::string::npos ? 1 : 3, names);
    EXPECT_THAT(cluster.Generate(Greedy("hello", 4)).status, IsOk());
  }
  ExpectHealthy(cluster, good);
}

TEST(RefusalTest, AModelTooBigIsExplainedInNumbersPerNode) {
  const std::string directory = FreshDirectory();
  Cluster cluster({.nodes = 2, .memory = "64MiB"});
  const std::string big = MakeTinyLlama(
      directory,
      {.name = "big", .layers = 8, .hidden = 512, .q_heads = 8, .kv_heads = 8, .ff = 1024});
  const CommandResult result = cluster.Shardctl({"model", "load", big});
  ExpectOneClearLine(result, 6,
                     {cluster.NodeName(0) + " has 64.0 MiB", cluster.NodeName(1) + " has 64.0 MiB",
                      "short by ", "big does not fit on 2 nodes"});
  const std::string small = MakeTinyLlama(directory, {.name = "small"});
  ExpectOneClearLine(cluster.Shardctl({"model", "load", small, "--shards", "3"}), 6,
                     {"3 shards", "2 are ready"});
  ExpectHealthy(cluster, small);
}

TEST(RefusalTest, NodesWithOtherWeightsUnderTheSameNameAreRefusedWithBothDigests) {
  const std::string directory = FreshDirectory();
  std::vector<std::string> paths;
  for (int i = 0; i < 2; ++i) {
    const std::string folder = absl::StrCat(directory, "/", i);
    std::filesystem::create_directories(folder);
    paths.push_back(MakeTinyLlama(folder, {.seed = static_cast<uint64_t>(i + 1)}));
  }
  Cluster cluster({.nodes = 2, .model_dir = directory + "/%d"});
  v1::LoadModelRequest request;
  request.set_path(paths[0]);
  request.set_shards(2);
  const absl::Status status = cluster.LoadModel(request);
  EXPECT_THAT(status, FailsWith(FailureKind::kIncompatibleRecipe));
  EXPECT_EQ(FailureDetailOf(status).node, NodeId(cluster.NodeName(1)));
  const std::string message(status.message());
  EXPECT_THAT(message, AllOf(HasSubstr(cluster.NodeName(1)), HasSubstr(paths[1])));
  EXPECT_EQ(DigestsIn(message).size(), 2u) << message;
  const Answer answer = cluster.Generate(Greedy("hello", 4));
  EXPECT_FALSE(answer.status.ok()) << "output of mixed weights";
  EXPECT_TRUE(answer.tokens.empty());

  // Unloaded and mended, the same nodes serve.
  ASSERT_THAT(cluster.UnloadModel("tiny"), IsOk());
  std::filesystem::copy_file(paths[0], paths[1], std::filesystem::copy_options::overwrite_existing);
  ExpectHealthy(cluster, paths[0]);
}

TEST(RefusalTest, ASplitModelLoadsFromAnyPartAndAMissingPartIsNamed) {
  const std::string directory = FreshDirectory();
  Cluster cluster({.nodes = 2});
  const std::string whole = MakeTinyLlama(directory, {.name = "whole"});
  const std::string part = MakeTinyLlama(directory, {.name = "split", .split_parts = 3});
  ExpectHealthy(cluster, part);
  const std::string second = absl::StrCat(directory, "/split-00002-of-00003.gguf");
  ASSERT_TRUE(std::filesystem::remove(second));
  ExpectOneClearLine(cluster.Shardctl({"model", "load", part}), 3, {"split-00002-of-00003.gguf"});
  ExpectHealthy(cluster, whole);
}

TEST(RefusalTest, RequestsThatCannotBeAreRefusedAndTheNextOneWorks) {
  const std::string directory = FreshDirectory();
  Cluster cluster({.nodes = 2});
  v1::LoadModelRequest load;
  load.set_path(MakeTinyLlama(directory, {.context = 128}));
  ASSERT_THAT(cluster.LoadModel(load), IsOk());

  v1::GenerateRequest empty = Greedy("", 4);
  EXPECT_THAT(cluster.Generate(empty).status, FailsWith(FailureKind::kInvalidRequest));

  v1::GenerateRequest too_long = Greedy(std::string(400, 'x'), 4);
  const absl::Status status = cluster.Generate(too_long).status;
  EXPECT_THAT(status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(status.message()), HasSubstr("128"));

  v1::GenerateRequest foreign_token = Greedy("", 4);
  foreign_token.mutable_tokens()->add_ids(1 << 30);
  EXPECT_THAT(cluster.Generate(foreign_token).status, FailsWith(FailureKind::kInvalidRequest));

  v1::GenerateRequest hot = Greedy("hello", 4);
  hot.mutable_sampling()->set_temperature(-1);
  EXPECT_THAT(cluster.Generate(hot).status, FailsWith(FailureKind::kInvalidRequest));

  v1::GenerateRequest nobody = Greedy("hello", 4);
  nobody.set_model("nobody");
  EXPECT_EQ(cluster.Generate(nobody).status.code(), absl::StatusCode::kNotFound);

  EXPECT_THAT(cluster.Generate(Greedy("hello", 4)).status, IsOk());
}

TEST(RefusalTest, ABusyPortABadFlagAndALockedStoreAreOneLineEach) {
  Cluster cluster({.nodes = 1});
  const std::string directory = FreshDirectory();
  ExpectOneClearLine(RunCommand({BinaryPath("shardline-coordinator"), "--listen",
                                 cluster.coordinator_address(), "--data-dir", directory + "/a"}),
                     1, {cluster.coordinator_address()});
  ExpectOneClearLine(
      RunCommand({BinaryPath("shardline-node"), "--listen", cluster.coordinator_address(),
                  "--coordinator", cluster.coordinator_address(), "--data-dir", directory + "/b"}),
      1, {cluster.coordinator_address()});
  ExpectOneClearLine(RunCommand({BinaryPath("shardline-coordinator"), "--no-such-flag"}), 2,
                     {"--no-such-flag"});
  ExpectOneClearLine(RunCommand({BinaryPath("shardline-node"), "--memory", "lots"}), 2, {"memory"});
  ExpectOneClearLine(RunCommand({BinaryPath("shardctl"), "frobnicate"}), 2, {"frobnicate"});
  ExpectOneClearLine(
      RunCommand({BinaryPath("shardctl"), "--endpoint", "127.0.0.1:1", "node", "list"}), 4,
      {"127.0.0.1:1"});
  EXPECT_TRUE(cluster.coordinator().Running());
}

}  // namespace
}  // namespace shardline::testing
