// The coordinator's disk is full: new work is refused by name, what runs finishes and is recorded,
// and with room again everything works. The disk is a small tmpfs in a mount namespace of this
// test, so it needs the right to make one: root, or user namespaces.

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// A tmpfs of `size` for this process and its children, gone when they are.
std::string MakeSmallDisk(const std::string& size) {
  if (unshare(CLONE_NEWNS) != 0) {
    SL_CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, "no mount namespace: ", strerror(errno));
  }
  SL_CHECK(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, strerror(errno));
  const std::string path = MakeTestDirectory();
  const std::string options = "size=" + size;
  SL_CHECK(mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) == 0, strerror(errno));
  return path;
}

// Takes every byte there is.
void Fill(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_APPEND, 0600);
  SL_CHECK(file >= 0, strerror(errno));
  const std::string bytes(4096, 'x');
  while (write(file, bytes.data(), bytes.size()) > 0) {
  }
  SL_CHECK(errno == ENOSPC, strerror(errno));
  close(file);
}

TEST(FullDiskTest, NewWorkIsRefusedByNameAndWhatRunsFinishes) {
  const std::string disk = MakeSmallDisk("8m");
  {
    Cluster cluster({.nodes = 2, .coordinator_data_dir = disk + "/coordinator"});
    v1::LoadModelRequest load;
    load.set_path(GoldenModelPath());
    load.set_shards(2);
    load.set_context_tokens_max(512);
    ASSERT_THAT(cluster.LoadModel(load), IsOk());
    v1::GenerateRequest request = Greedy("The quick brown fox", 200);
    request.set_deadline_ms(20'000);
    const Answer calm = cluster.Generate(request);
    ASSERT_THAT(calm.status, IsOk());

    const Answer running = cluster.Generate(request, [&](int count) {
      if (count != 20) return;
      Fill(disk + "/filler");
      // The log on disk may have a little room of its own; it does not last.
      absl::Status refused;
      for (int i = 0; i < 200 && refused.ok(); ++i) {
        refused = cluster.Generate(Greedy("no room for this", 1)).status;
      }
      EXPECT_THAT(refused, FailsWith(FailureKind::kOverloaded));
      EXPECT_THAT(std::string(refused.message()), HasSubstr("full"));
      EXPECT_THAT(std::string(refused.message()), HasSubstr(disk));
    });
    EXPECT_THAT(running.status, IsOk());
    EXPECT_TRUE(running.end.has_value());
    EXPECT_THAT(running.digests, ElementsAreArray(calm.digests));
    EXPECT_TRUE(cluster.coordinator().Running());

    std::filesystem::remove(disk + "/filler");
    EXPECT_TRUE(cluster.Until(absl::Seconds(10), [&](Cluster& c) {
      return c.Generate(Greedy("The quick brown fox", 4)).status.ok();
    }));
  }
  umount(disk.c_str());
  std::filesystem::remove(disk);
}

}  // namespace
}  // namespace shardline::testing
