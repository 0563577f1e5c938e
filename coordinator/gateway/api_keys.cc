#include "coordinator/gateway/api_keys.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr size_t kSaltBytes = 16;
constexpr size_t kHashBytes = 32;
constexpr size_t kSecretBytes = 32;
constexpr size_t kKeysMax = 256;
constexpr int64_t kFileBytesMax = 1 << 20;
constexpr absl::Duration kLookEvery = absl::Seconds(1);
constexpr std::string_view kScheme = "sha256";

// Absl's string_view is not the standard one.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

// The bytes of exactly `bytes` pairs of hex digits.
std::optional<std::string> FromHex(std::string_view hex, size_t bytes) {
  const bool is_hex =
      hex.size() == 2 * bytes &&
      std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); });
  if (!is_hex) return std::nullopt;
  return absl::HexStringToBytes(View(hex));
}

std::string HashOf(std::string_view salt, std::string_view secret) {
  // The salt has one length, so that no two pairs make one text.
  const std::string text = absl::StrCat(View(salt), View(secret));
  std::string hash(kHashBytes, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return MakeFailure(FailureKind::kOverloaded, "the system has no random numbers");
  }
  return bytes;
}

// Nothing unless the line is a key's.
std::optional<ApiKey> ParseLine(std::string_view line) {
  const std::vector<std::string> fields = absl::StrSplit(View(line), ':');
  if (fields.size() != 5 || !IsName(fields[0]) || fields[2] != kScheme) return std::nullopt;
  ApiKey key{.name = fields[0], .kind = KeyKind::kInference, .salt = {}, .hash = {}};
  if (fields[1] == KeyKindName(KeyKind::kAdmin)) {
    key.kind = KeyKind::kAdmin;
  } else if (fields[1] != KeyKindName(KeyKind::kInference)) {
    return std::nullopt;
  }
  std::optional<std::string> salt = FromHex(fields[3], kSaltBytes);
  std::optional<std::string> hash = FromHex(fields[4], kHashBytes);
  if (!salt || !hash) return std::nullopt;
  key.salt = *std::move(salt);
  key.hash = *std::move(hash);
  return key;
}

absl::Status BadLine(int number, std::string_view why) {
  return MakeFailure(FailureKind::kInvalidRequest, absl::StrCat("line ", number, ": ", View(why)));
}

absl::Status FileError(const std::string& path, std::string_view what, int error) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", View(what), error == 0 ? "" : ": ",
                                                    error == 0 ? "" : std::strerror(error)));
}

// Closes what was opened.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

std::string_view KeyKindName(KeyKind kind) {
  return kind == KeyKind::kAdmin ? "admin" : "inference";
}

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text) {
  ApiKeys keys;
  std::set<std::string> names;
  int number = 0;
  for (absl::string_view raw : absl::StrSplit(View(text), '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#') continue;
    std::optional<ApiKey> key = ParseLine({line.data(), line.size()});
    if (!key) {
      return BadLine(number,
                     "not NAME:inference|admin:sha256:SALT:HASH; `shardctl key new` "
                     "makes such a line");
    }
    if (!names.insert(key->name).second) {
      return BadLine(number, absl::StrCat("a key named ", key->name, " is there already"));
    }
    if (keys.keys_.size() == kKeysMax) {
      return BadLine(number, absl::StrCat("more than ", kKeysMax, " keys"));
    }
    keys.keys_.push_back(*std::move(key));
  }
  return keys;
}

bool ApiKeys::Has(KeyKind kind) const {
  return std::any_of(keys_.begin(), keys_.end(),
                     [kind](const ApiKey& key) { return key.kind == kind; });
}

const ApiKey* ApiKeys::Find(std::string_view secret) const {
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {
    const std::string hash = HashOf(key.salt, secret);
    if (CRYPTO_memcmp(hash.data(), key.hash.data(), kHashBytes) == 0) found = &key;
  }
  return found;
}

absl::StatusOr<NewApiKey> MakeApiKey(std::string_view name, KeyKind kind) {
  if (!IsName(name)) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       "a key's name is 1 to 64 letters, digits, '.', '_' or '-'");
  }
  SL_ASSIGN_OR_RETURN(const std::string random, RandomBytes(kSecretBytes));
  SL_ASSIGN_OR_RETURN(const std::string salt, RandomBytes(kSaltBytes));
  NewApiKey key;
  key.secret = absl::StrCat(kind == KeyKind::kAdmin ? "sl-admin-" : "sl-",
                            absl::WebSafeBase64Escape(random));
  key.line = absl::StrCat(View(name), ":", View(KeyKindName(kind)), ":", View(kScheme), ":",
                          absl::BytesToHexString(salt), ":",
                          absl::BytesToHexString(HashOf(salt, key.secret)));
  return key;
}

absl::Status AppendKeyLine(const std::string& path, const std::string& line) {
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0) return FileError(path, "cannot be written", errno);
  // In one piece, and on a line of its own whatever the file ends with.
  const std::string text = absl::StrCat("\n", line, "\n");
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return FileError(path, "cannot be written", errno);
  }
  return absl::OkStatus();
}

struct ApiKeyFile::Content {
  Stamp stamp;
  ApiKeys keys;
};

ApiKeyFile::ApiKeyFile(std::string path, const Clock* clock, Content content)
    : path_(std::move(path)),
      clock_(clock),
      keys_(std::make_shared<const ApiKeys>(std::move(content.keys))),
      stamp_(content.stamp),
      looked_at_(clock->Now()) {}

absl::StatusOr<std::unique_ptr<ApiKeyFile>> ApiKeyFile::Open(const std::string& path,
                                                             const Clock* clock) {
  SL_ASSIGN_OR_RETURN(Content content, ReadWhole(path));
  return std::unique_ptr<ApiKeyFile>(new ApiKeyFile(path, clock, std::move(content)));
}

absl::StatusOr<ApiKeyFile::Stamp> ApiKeyFile::StampOf(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return FileError(path, "cannot be read", errno);
  return Stamp{.modified_ns = found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec,
               .size = static_cast<uint64_t>(found.st_size),
               .inode = found.st_ino};
}

absl::StatusOr<ApiKeyFile::Content> ApiKeyFile::ReadWhole(const std::string& path) {
  SL_ASSIGN_OR_RETURN(const Stamp stamp, StampOf(path));  // First: a change during the read shows.
  // A pipe without a writer would hold us.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return FileError(path, "cannot be read", errno);
  struct stat found = {};
  if (fstat(file.get(), &found) != 0) return FileError(path, "cannot be read", errno);
  if (!S_ISREG(found.st_mode)) return FileError(path, "is not a file", 0);
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return FileError(path, "others than its owner may write it; chmod 600 it", 0);
  }
  if ((found.st_mode & S_IROTH) != 0) {
    LogWarning("the file of keys can be read by everybody; chmod 600 it", {{"path", path}});
  }
  if (found.st_size > kFileBytesMax) return FileError(path, "is larger than 1 MiB", 0);
  std::string text(static_cast<size_t>(found.st_size), '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path, "cannot be read", errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  text.resize(size);
  absl::StatusOr<ApiKeys> keys = ApiKeys::Parse(text);
  if (!keys.ok()) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat(path, ": ", std::string(keys.status().message())));
  }
  // An editor empties a file before it writes it; without keys everything would be open.
  if (keys->empty()) {
    return FileError(path, "has no key; `shardctl key new NAME` makes a line of it", 0);
  }
  return Content{.stamp = stamp, .keys = *std::move(keys)};
}

std::shared_ptr<const ApiKeys> ApiKeyFile::Keys() {
  absl::MutexLock lock(&mu_);
  const Instant now = clock_->Now();
  if (now - looked_at_ < kLookEvery) return keys_;
  looked_at_ = now;
  const absl::StatusOr<Stamp> stamp = StampOf(path_);
  if (stamp.ok() && *stamp == stamp_) return keys_;
  absl::StatusOr<Content> content = stamp.ok() ? ReadWhole(path_) : stamp.status();
  if (content.ok()) {
    keys_ = std::make_shared<const ApiKeys>(std::move(content->keys));
    stamp_ = content->stamp;
    LogInfo("keys read again", {{"path", path_}, {"keys", static_cast<uint64_t>(keys_->size())}});
    return keys_;
  }
  // Remembered, so that one fault is told once.
  const Stamp seen = stamp.ok() ? *stamp : Stamp{};
  if (seen != stamp_) {
    LogError("the keys of before stay in force", {{"status", content.status()}});
    stamp_ = seen;
  }
  return keys_;
}

}  // namespace shardline
