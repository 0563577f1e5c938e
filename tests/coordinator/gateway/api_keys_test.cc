#include "coordinator/gateway/api_keys.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ManualClock final : public Clock {
 public:
  Instant Now() const override { return now; }
  Instant now = Instant::FromOrigin(absl::Seconds(100));
};

NewApiKey Make(const std::string& name, KeyKind kind = KeyKind::kInference) {
  absl::StatusOr<NewApiKey> key = MakeApiKey(name, kind);
  EXPECT_THAT(key.status(), IsOk());
  return *key;
}

TEST(ApiKeys, AKeyIsFoundByItsSecretAndByNothingElse) {
  const NewApiKey app = Make("app");
  const NewApiKey ops = Make("ops", KeyKind::kAdmin);
  const absl::StatusOr<ApiKeys> keys =
      ApiKeys::Parse(absl::StrCat("# ours\n\n", app.line, "\r\n", ops.line));
  ASSERT_THAT(keys.status(), IsOk());
  EXPECT_EQ(keys->size(), 2u);
  ASSERT_NE(keys->Find(app.secret), nullptr);
  EXPECT_EQ(keys->Find(app.secret)->name, "app");
  EXPECT_EQ(keys->Find(app.secret)->kind, KeyKind::kInference);
  ASSERT_NE(keys->Find(ops.secret), nullptr);
  EXPECT_EQ(keys->Find(ops.secret)->kind, KeyKind::kAdmin);
  for (size_t i = 0; i < app.secret.size(); ++i) {
    std::string other = app.secret;
    other[i] ^= 1;
    EXPECT_EQ(keys->Find(other), nullptr) << i;
    EXPECT_EQ(keys->Find(app.secret.substr(0, i)), nullptr) << i;
  }
  EXPECT_EQ(keys->Find(app.secret + " "), nullptr);
  EXPECT_EQ(keys->Find(app.line), nullptr) << "the line is no secret, and opens nothing";
}

TEST(ApiKeys, ALineSaysNothingOfItsSecretAndNoTwoAreAlike) {
  const NewApiKey first = Make("app");
  const NewApiKey second = Make("app");
  EXPECT_NE(first.secret, second.secret);
  EXPECT_NE(first.line, second.line);
  EXPECT_THAT(first.line, StartsWith("app:inference:sha256:"));
  EXPECT_THAT(first.line, Not(HasSubstr(first.secret.substr(3, 8))));
  EXPECT_THAT(first.secret, StartsWith("sl-"));
  EXPECT_THAT(Make("ops", KeyKind::kAdmin).secret, StartsWith("sl-admin-"));
}

TEST(ApiKeys, NamesAreFitForLogs) {
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a:b"),
                                  std::string("a\nb"), std::string("\x80"), std::string(65, 'a')}) {
    EXPECT_THAT(MakeApiKey(name, KeyKind::kInference).status(),
                FailsWith(FailureKind::kInvalidRequest))
        << name;
  }
  EXPECT_THAT(MakeApiKey("Team_7.web-1", KeyKind::kInference).status(), IsOk());
}

TEST(ApiKeys, AWrongLineIsNamedByItsNumberAndNeverShown) {
  const NewApiKey key = Make("app");
  const std::vector<std::string> wrong = {
      key.secret,  // The secret in place of its line.
      "app",
      "app:inference:sha256::",
      "app:root" + key.line.substr(key.line.find(":sha256")),
      "app:inference:md5" + key.line.substr(key.line.find("sha256") + 6),
      key.line.substr(0, key.line.size() - 1),
      key.line + "0",
      key.line.substr(0, key.line.size() - 1) + "g",
      ":inference" + key.line.substr(key.line.find(":sha256")),
      std::string("\0\0", 2),
  };
  for (const std::string& line : wrong) {
    const absl::Status status = ApiKeys::Parse("# one\n" + line + "\n").status();
    EXPECT_THAT(status, FailsWith(FailureKind::kInvalidRequest)) << line;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("line 2"), Not(HasSubstr(key.secret)),
                      Not(HasSubstr(key.line.substr(key.line.rfind(':'))))));
  }
  EXPECT_THAT(ApiKeys::Parse(key.line + "\n" + key.line).status(),
              FailsWith(FailureKind::kInvalidRequest))
      << "one name, one key";
}

TEST(ApiKeys, TheirNumberIsBounded) {
  const std::string rest = Make("a").line.substr(1);
  std::string text;
  for (int i = 0; i < 257; ++i) absl::StrAppend(&text, "k", i, rest, "\n");
  EXPECT_THAT(ApiKeys::Parse(text).status(), FailsWith(FailureKind::kInvalidRequest));
}

class ApiKeyFileTest : public ::testing::Test {
 protected:
  ApiKeyFileTest()
      : path_(absl::StrCat(::testing::TempDir(), "/keys-",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~ApiKeyFileTest() override { std::remove(path_.c_str()); }

  void Write(const std::string& text, mode_t mode = 0600) {
    std::remove(path_.c_str());  // A new inode: two writes within one tick of the disk's clock.
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  std::unique_ptr<ApiKeyFile> Open() {
    absl::StatusOr<std::unique_ptr<ApiKeyFile>> file = ApiKeyFile::Open(path_, &clock_);
    EXPECT_THAT(file.status(), IsOk());
    return *std::move(file);
  }
  absl::Status OpenStatus() { return ApiKeyFile::Open(path_, &clock_).status(); }
  void Later() { clock_.now = clock_.now + absl::Seconds(2); }

  const std::string path_;
  ManualClock clock_;
};

TEST_F(ApiKeyFileTest, AFileThatChangesIsReadAgain) {
  const NewApiKey old_key = Make("old");
  const NewApiKey new_key = Make("new");
  Write(old_key.line);
  const std::unique_ptr<ApiKeyFile> file = Open();
  const std::shared_ptr<const ApiKeys> before = file->Keys();
  Write(new_key.line);
  EXPECT_EQ(file->Keys(), before) << "not looked at twice within a second";
  Later();
  EXPECT_NE(file->Keys()->Find(new_key.secret), nullptr);
  EXPECT_EQ(file->Keys()->Find(old_key.secret), nullptr) << "a key taken out opens nothing";
  EXPECT_NE(before->Find(old_key.secret), nullptr) << "who holds the old ones keeps them";
}

TEST_F(ApiKeyFileTest, AFileGoneBadLeavesTheKeysOfBeforeInForce) {
  const NewApiKey key = Make("app");
  Write(key.line);
  const std::unique_ptr<ApiKeyFile> file = Open();
  const auto still_there = [&] {
    Later();
    return file->Keys()->Find(key.secret) != nullptr && file->Keys()->size() == 1;
  };
  Write("");
  EXPECT_TRUE(still_there()) << "an editor empties a file before it writes it";
  Write("# none\n");
  EXPECT_TRUE(still_there());
  Write("nonsense");
  EXPECT_TRUE(still_there());
  Write(Make("mallory").line, 0666);
  EXPECT_TRUE(still_there());
  std::remove(path_.c_str());
  EXPECT_TRUE(still_there());
  const NewApiKey mended = Make("mended");
  Write(mended.line);
  Later();
  EXPECT_NE(file->Keys()->Find(mended.secret), nullptr);
}

TEST_F(ApiKeyFileTest, OnlyAFileThatItsOwnerAloneMayWriteIsOpened) {
  const NewApiKey key = Make("app");
  Write(key.line, 0620);
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("chmod 600"));
  Write(key.line, 0602);
  EXPECT_FALSE(OpenStatus().ok());
  Write(key.line, 0644);
  EXPECT_THAT(OpenStatus(), IsOk()) << "hashes may be read";
  Write("");
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("has no key"));
  std::remove(path_.c_str());
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr(path_));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("is not a file"));
}

TEST_F(ApiKeyFileTest, LinesAreAddedToWhatIsThere) {
  const NewApiKey first = Make("first");
  const NewApiKey second = Make("second");
  std::remove(path_.c_str());
  ASSERT_THAT(AppendKeyLine(path_, first.line), IsOk());
  struct stat made = {};
  ASSERT_EQ(stat(path_.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0600u);
  std::ofstream(path_, std::ios::app) << "# no newline";
  ASSERT_THAT(AppendKeyLine(path_, second.line), IsOk());
  const std::shared_ptr<const ApiKeys> keys = Open()->Keys();
  EXPECT_NE(keys->Find(first.secret), nullptr);
  EXPECT_NE(keys->Find(second.secret), nullptr);
  EXPECT_FALSE(AppendKeyLine(::testing::TempDir(), first.line).ok());
}

}  // namespace
}  // namespace shardline
