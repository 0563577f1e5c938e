#include "node/node_options.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "node/capacity.h"
#include "proto/wire/message_conversion.h"
#include "yaml-cpp/yaml.h"

namespace shardline {
namespace {

constexpr double kDefaultMemoryShare = 0.8;
constexpr uint64_t kMemoryBytesMin = 64 << 20;
constexpr int32_t kThreadsMax = 1024;
constexpr size_t kMachineBytesMax = 256;

constexpr char kFooter[] =
    "Every option may also come from the environment (SHARDLINE_NODE_MEMORY for --memory) or from\n"
    "the YAML file named by --config (memory: 12GiB). A flag beats the environment, which beats\n"
    "the file.\n\n"
    "Example:\n"
    "  shardline-node --listen 10.0.0.2:7080 --coordinator 10.0.0.1:7070 \\\n"
    "                 --data-dir /var/lib/shardline-node --memory 12GiB";

absl::Status Invalid(const std::string& what) {
  return MakeFailure(FailureKind::kInvalidRequest, what);
}

absl::Status CheckAddress(const std::string& field, const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return Invalid(absl::StrCat(field, ": '", address, "' is not host:port"));
  }
  return absl::OkStatus();
}

// The options as text, before they are understood. One row an option: flag, text, help.
struct RawOption {
  std::string name;
  std::string help;
  std::string text;
};

using RawOptionTable = std::array<RawOption, 15>;

RawOptionTable RawOptions() {
  return {{{"listen", "host:port to listen on; port 0 picks one [127.0.0.1:0]", ""},
           {"advertise", "host:port that others reach this node by [what was bound]", ""},
           {"coordinator", "host:port of the coordinator [127.0.0.1:7070]", ""},
           {"data-dir", "directory that keeps the node's id [~/.local/state/shardline-node]", ""},
           {"node-id", "name of this node, in place of the one in data-dir", ""},
           {"model-dir", "directory to look for model files in first", ""},
           {"memory", "memory for weights and KV, as 12GiB [80 % of what there is]", ""},
           {"threads", "compute threads [as many as the process may use]", ""},
           {"drafts", "auto: guess tokens and check them where that is free; or off [auto]", ""},
           {"machine", "what cores and memory are shared with, by its name [this machine]", ""},
           {"log-level", "debug, info, warning or error [info]", ""},
           {"log-format", "text or json [text]", ""},
           {"port-file", "file that gets the bound address", ""},
           {"metrics-listen", "host:port of /metrics for Prometheus; port 0 picks one [off]", ""},
           {"drain-timeout", "time for sessions to end or move when told to stop [10s]", ""}}};
}

std::string EnvironmentName(const std::string& flag) {
  return absl::StrCat("SHARDLINE_NODE_",
                      absl::AsciiStrToUpper(absl::StrReplaceAll(flag, {{"-", "_"}})));
}

// Fills options that neither flag nor environment gave.
absl::Status ApplyFile(const std::string& path, const CLI::App& app, RawOptionTable& raw) {
  YAML::Node file;
  // The one place where yaml-cpp may throw.
  try {
    file = YAML::LoadFile(path);
    if (!file.IsMap()) return Invalid(absl::StrCat("config: ", path, " is no map of options"));
    for (const auto& entry : file) {
      const auto key = entry.first.as<std::string>();
      RawOption* option = nullptr;
      for (RawOption& candidate : raw) {
        if (candidate.name == key) option = &candidate;
      }
      if (option == nullptr) return Invalid(absl::StrCat("config: ", path, ": no option ", key));
      if (app.get_option("--" + key)->count() == 0) option->text = entry.second.as<std::string>();
    }
  } catch (const YAML::Exception& error) {
    return Invalid(absl::StrCat("config: ", path, ": ", error.what()));
  }
  return absl::OkStatus();
}

absl::StatusOr<LogLevel> ParseLogLevel(const std::string& text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  return Invalid(absl::StrCat("log-level: '", text, "' is not debug, info, warning or error"));
}

absl::StatusOr<LogFormat> ParseLogFormat(const std::string& text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return Invalid(absl::StrCat("log-format: '", text, "' is not text or json"));
}

absl::StatusOr<bool> ParseDrafts(const std::string& text) {
  if (text == "auto") return true;
  if (text == "off") return false;
  return Invalid(absl::StrCat("drafts: '", text, "' is not auto or off"));
}

std::string DefaultDataDir() {
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : absl::StrCat(home, "/.local/state/shardline-node");
}

absl::StatusOr<NodeOptions> Understand(const RawOptionTable& raw) {
  NodeOptions options;
  options.data_dir = DefaultDataDir();
  options.memory_bytes =
      static_cast<uint64_t>(static_cast<double>(MemoryTotalBytes()) * kDefaultMemoryShare);
  for (const RawOption& option : raw) {
    const std::string& text = option.text;
    if (text.empty()) continue;
    if (option.name == "listen") options.listen = text;
    if (option.name == "advertise") options.advertise = text;
    if (option.name == "coordinator") options.coordinator = text;
    if (option.name == "data-dir") options.data_dir = text;
    if (option.name == "node-id") options.node_id = NodeId(text);
    if (option.name == "model-dir") options.model_dir = text;
    if (option.name == "machine") options.machine = text;
    if (option.name == "port-file") options.port_file = text;
    if (option.name == "metrics-listen") options.metrics_listen = text;
    if (option.name == "memory") {
      SL_ASSIGN_OR_RETURN(options.memory_bytes, ParseByteSize(text));
    }
    if (option.name == "drain-timeout" && !absl::ParseDuration(text, &options.drain_timeout)) {
      return Invalid(absl::StrCat("drain-timeout: '", text, "' is no duration like 10s"));
    }
    if (option.name == "threads" && !absl::SimpleAtoi(text, &options.threads)) {
      return Invalid(absl::StrCat("threads: '", text, "' is no number"));
    }
    if (option.name == "drafts") {
      SL_ASSIGN_OR_RETURN(options.drafts, ParseDrafts(text));
    }
    if (option.name == "log-level") {
      SL_ASSIGN_OR_RETURN(options.log_level, ParseLogLevel(text));
    }
    if (option.name == "log-format") {
      SL_ASSIGN_OR_RETURN(options.log_format, ParseLogFormat(text));
    }
  }
  return options;
}

std::string RandomNodeId() {
  std::random_device random;
  return absl::StrFormat("node-%08x", random());
}

absl::Status CannotKeepId(const std::string& path) {
  return Invalid(absl::StrCat("data-dir: ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status NodeOptions::Validate() const {
  SL_RETURN_IF_ERROR(CheckAddress("listen", listen));
  SL_RETURN_IF_ERROR(CheckAddress("coordinator", coordinator));
  if (!metrics_listen.empty()) {
    SL_RETURN_IF_ERROR(CheckAddress("metrics-listen", metrics_listen));
  }
  if (!advertise.empty()) SL_RETURN_IF_ERROR(CheckAddress("advertise", advertise));
  if (!node_id.empty() && !IsValidNodeId(node_id.value())) {
    return Invalid(absl::StrCat("node-id: '", node_id.value(),
                                "' is not made of letters, digits, '.', '_' and '-'"));
  }
  if (node_id.empty() && data_dir.empty()) {
    return Invalid("data-dir: needed to keep the node's id, unless node-id is given");
  }
  if (memory_bytes < kMemoryBytesMin) {
    return Invalid(absl::StrCat("memory: ", memory_bytes, " bytes; at least 64MiB"));
  }
  if (drain_timeout < absl::ZeroDuration() || drain_timeout > absl::Hours(1)) {
    return Invalid(
        absl::StrCat("drain-timeout: ", absl::FormatDuration(drain_timeout), "; from 0s to 1h"));
  }
  if (machine.size() > kMachineBytesMax) {
    return Invalid(absl::StrCat("machine: ", machine.size(), " bytes; at most ", kMachineBytesMax));
  }
  if (threads < 0 || threads > kThreadsMax) {
    return Invalid(absl::StrCat("threads: ", threads, "; 0 to ", kThreadsMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeCommandLine> ParseNodeCommandLine(int argc, const char* const* argv) {
  CLI::App app("Holds a range of a model's layers and computes them for sessions.");
  app.footer(kFooter);
  app.set_version_flag("--version", absl::StrCat("shardline-node ", std::string(kVersion)));
  RawOptionTable raw = RawOptions();
  for (RawOption& option : raw) {
    app.add_option("--" + option.name, option.text, option.help)
        ->envname(EnvironmentName(option.name));
  }
  std::string config;
  app.add_option("--config", config, "YAML file with any of these options")
      ->envname(EnvironmentName("config"));
  // The one place where CLI11 throws.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return NodeCommandLine{.options = {}, .print = app.help()};
  } catch (const CLI::CallForVersion&) {
    return NodeCommandLine{.options = {}, .print = app.version() + "\n"};
  } catch (const CLI::ParseError& error) {
    return Invalid(error.what());
  }
  if (!config.empty()) SL_RETURN_IF_ERROR(ApplyFile(config, app, raw));
  SL_ASSIGN_OR_RETURN(NodeOptions options, Understand(raw));
  SL_RETURN_IF_ERROR(options.Validate());
  return NodeCommandLine{.options = std::move(options), .print = std::nullopt};
}

absl::StatusOr<uint64_t> ParseByteSize(const std::string& text) {
  static constexpr std::array<std::pair<absl::string_view, double>, 5> kUnits = {
      {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"B", 1.0}}};
  absl::string_view digits = text;
  double unit = 1.0;
  for (const auto& [suffix, bytes] : kUnits) {
    if (!absl::EndsWith(digits, suffix)) continue;
    digits.remove_suffix(suffix.size());
    unit = bytes;
    break;
  }
  double number = 0.0;
  const bool readable = absl::SimpleAtod(absl::StripAsciiWhitespace(digits), &number);
  if (!readable || !(number >= 0.0) || number * unit >= 0x1p63) {
    return Invalid(absl::StrCat("memory: '", text, "' is not a size like 12GiB or 512MiB"));
  }
  return static_cast<uint64_t>(number * unit);
}

absl::StatusOr<NodeId> ClaimNodeId(const std::string& data_dir) {
  std::error_code error;
  std::filesystem::create_directories(data_dir, error);
  if (error) return Invalid(absl::StrCat("data-dir: ", data_dir, ": ", error.message()));
  const std::string lock_path = data_dir + "/lock";
  // Held until the process ends.
  const int lock = open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (lock < 0) return CannotKeepId(lock_path);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return Invalid(absl::StrCat("data-dir: ", data_dir, " is in use by another node"));
  }
  const std::string path = data_dir + "/node-id";
  std::string id;
  if (std::ifstream(path) >> id) {
    if (IsValidNodeId(id)) return NodeId(id);
    return Invalid(absl::StrCat("data-dir: ", path, " holds no node id"));
  }
  id = RandomNodeId();
  const std::string line = id + "\n";
  const std::string draft = path + ".new";
  const int file = open(draft.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return CannotKeepId(draft);
  const bool written = write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
                       fsync(file) == 0;
  close(file);
  if (!written || rename(draft.c_str(), path.c_str()) != 0) return CannotKeepId(path);
  return NodeId(id);
}

}  // namespace shardline
