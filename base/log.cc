#include "base/log.h"

#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace shardline {
namespace {

struct Sink {
  LogOptions options;
  std::shared_ptr<spdlog::logger> logger;
};

std::shared_ptr<spdlog::logger> MakeLogger() {
  auto logger = std::make_shared<spdlog::logger>("shardline",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%v");
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::info);
  return logger;
}

// Set once at start-up, before threads that log exist; read-only afterwards.
Sink& TheSink() {
  static Sink* const sink = new Sink{.options = {}, .logger = MakeLogger()};
  return *sink;
}

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

// JSON string escapes; bytes that are not ASCII pass through, so UTF-8 stays UTF-8, and a control
// byte can break neither format.
void AppendQuoted(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<unsigned>(c));
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

bool NeedsQuotes(std::string_view text) {
  if (text.empty()) return true;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\') return true;
  }
  return false;
}

void AppendText(std::string_view key, const LogValue& value, std::string* out) {
  out->push_back(' ');
  out->append(key);
  out->push_back('=');
  if (value.quoted() && NeedsQuotes(value.text())) {
    AppendQuoted(value.text(), out);
  } else {
    out->append(value.text());
  }
}

void AppendJson(std::string_view key, const LogValue& value, std::string* out) {
  out->push_back(',');
  AppendQuoted(key, out);
  out->push_back(':');
  if (value.quoted()) {
    AppendQuoted(value.text(), out);
  } else {
    out->append(value.text());
  }
}

}  // namespace

LogValue::LogValue(double value) : text_(absl::StrFormat("%.6g", value)) {
  quoted_ = text_.find_first_not_of("0123456789+-.e") != std::string::npos;  // nan, inf
}

LogValue::LogValue(absl::Duration value) : text_(absl::FormatDuration(value)), quoted_(true) {}

void InitLog(const LogOptions& options) { TheSink().options = options; }

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  const Sink& sink = TheSink();
  if (level < sink.options.level) return;
  const std::string ts = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  sink.logger->log(level == LogLevel::kDebug ? spdlog::level::debug : spdlog::level::info,
                   FormatLogLine(sink.options, ts, level, message, fields));
}

std::string FormatLogLine(const LogOptions& options, std::string_view ts, LogLevel level,
                          std::string_view message, std::initializer_list<LogField> fields) {
  std::string line;
  if (options.format == LogFormat::kJson) {
    line.append("{\"ts\":");
    AppendQuoted(ts, &line);
    AppendJson("level", LevelName(level), &line);
    AppendJson("msg", message, &line);
    if (!options.component.empty()) AppendJson("component", options.component, &line);
    for (const LogField& field : fields) AppendJson(field.key, field.value, &line);
    line.push_back('}');
    return line;
  }
  line.append(ts);
  line.push_back(' ');
  line.append(LevelName(level));
  AppendText("msg", message, &line);
  if (!options.component.empty()) AppendText("component", options.component, &line);
  for (const LogField& field : fields) AppendText(field.key, field.value, &line);
  return line;
}

}  // namespace shardline
