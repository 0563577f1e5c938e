#pragma once

// Structured logging: a constant message, and data in fields.
//
//   LogInfo("shard loaded", {{"model", id}, {"layers", range.ToString()}, {"seconds", 1.2}});
//
// Lines go to stderr as `ts level msg key=value …` or as one JSON object each. Never prompts or
// completions. Any thread; before InitLog the format is key=value at level info.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/id.h"

namespace shardline {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string component;  // Set on every line: "node", "coordinator".
};

// A log value, rendered when it is built.
class LogValue {
 public:
  LogValue(std::string_view text) : text_(text), quoted_(true) {}    // NOLINT: implicit
  LogValue(const char* text) : text_(text), quoted_(true) {}         // NOLINT: implicit
  LogValue(const std::string& text) : text_(text), quoted_(true) {}  // NOLINT: implicit
  LogValue(bool value) : text_(value ? "true" : "false") {}          // NOLINT: implicit
  LogValue(int value) : text_(std::to_string(value)) {}              // NOLINT: implicit
  LogValue(int64_t value) : text_(std::to_string(value)) {}          // NOLINT: implicit
  LogValue(uint64_t value) : text_(std::to_string(value)) {}         // NOLINT: implicit
  LogValue(double value);                                            // NOLINT: implicit
  LogValue(absl::Duration value);                                    // NOLINT: implicit
  LogValue(const absl::Status& value) : text_(value.ToString()), quoted_(true) {}  // NOLINT
  template <typename Tag>
  LogValue(Id<Tag> id) : text_(std::to_string(id.value())) {}  // NOLINT: implicit
  template <typename Tag>
  LogValue(const Name<Tag>& name) : text_(name.value()), quoted_(true) {}  // NOLINT: implicit

  const std::string& text() const { return text_; }
  bool quoted() const { return quoted_; }

 private:
  std::string text_;
  bool quoted_ = false;  // A string in JSON; numbers and booleans are bare.
};

struct LogField {
  std::string_view key;
  LogValue value;
};

void InitLog(const LogOptions& options);

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

inline void LogDebug(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, message, fields);
}
inline void LogInfo(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, message, fields);
}

// The line that Log would write, without its newline; for tests. `ts` is RFC 3339, UTC, ms.
std::string FormatLogLine(const LogOptions& options, std::string_view ts, LogLevel level,
                          std::string_view message, std::initializer_list<LogField> fields);

}  // namespace shardline
