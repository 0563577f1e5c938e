#pragma once

// The keys that clients and operators show, as the coordinator knows them: by salted hash alone.
//
// The file has one key a line, which `shardctl key new` makes:
//
//   NAME:inference:sha256:SALT:HASH        or NAME:admin:…
//
// Blank lines and lines that begin with '#' are skipped. Keys are 256 random bits, so one round of
// the hash is enough: there is nothing to guess. No error, log line or list ever holds a key, or a
// line of the file, which may have been a key by mistake.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/instant.h"

namespace shardline {

enum class KeyKind {
  kInference,  // /v1 and what stands beside it.
  kAdmin,      // /admin alone.
};

// "inference", "admin".
std::string_view KeyKindName(KeyKind kind);

struct ApiKey {
  std::string name;  // Letters, digits, '.', '_' and '-'; at most 64. In logs, and the tenant.
  KeyKind kind = KeyKind::kInference;
  std::string salt;  // 16 bytes.
  std::string hash;  // 32 bytes.
};

// Immutable; any thread.
class ApiKeys {
 public:
  ApiKeys() = default;
  // kInvalidRequest, naming the line by its number, for a line that is no key, a name that is there
  // twice, or more than 256 keys.
  static absl::StatusOr<ApiKeys> Parse(std::string_view text);

  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }
  bool Has(KeyKind kind) const;

  // The key whose secret this is, or nothing. Looks at every key, and at every byte of each, so
  // that the time tells nothing.
  const ApiKey* Find(std::string_view secret) const;

 private:
  std::vector<ApiKey> keys_;
};

// A key that is new: the secret is to be shown once, the line to be kept.
struct NewApiKey {
  std::string secret;  // "sl-…" or "sl-admin-…".
  std::string line;    // Without newline.
};
// kInvalidRequest for a name that no key may have; kOverloaded when the system has no random bits.
absl::StatusOr<NewApiKey> MakeApiKey(std::string_view name, KeyKind kind);

// Adds the line to the file, which is made for its owner alone if it is not there. One line that
// names the file: it cannot be written.
absl::Status AppendKeyLine(const std::string& path, const std::string& line);

// The keys of a file, read again when it changes. Any thread.
class ApiKeyFile {
 public:
  // One line that names the file: it cannot be read, holds a line that is no key, or no key at all,
  // or is writable for others than its owner. One that others can read is only warned about.
  // `clock` outlives this.
  static absl::StatusOr<std::unique_ptr<ApiKeyFile>> Open(const std::string& path,
                                                          const Clock* clock);

  // Never null. Looks at the file once a second at most; one that has gone bad is logged once and
  // changes nothing, so that a slip of the editor locks nobody out, nor lets anybody in.
  std::shared_ptr<const ApiKeys> Keys() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What tells one state of the file from another.
  struct Stamp {
    int64_t modified_ns = 0;
    uint64_t size = 0;
    uint64_t inode = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  struct Content;

  ApiKeyFile(std::string path, const Clock* clock, Content content);
  static absl::StatusOr<Stamp> StampOf(const std::string& path);
  static absl::StatusOr<Content> ReadWhole(const std::string& path);

  const std::string path_;
  const Clock* const clock_;

  absl::Mutex mu_;
  std::shared_ptr<const ApiKeys> keys_ ABSL_GUARDED_BY(mu_);
  Stamp stamp_ ABSL_GUARDED_BY(mu_);
  Instant looked_at_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline
