#pragma once

// shardctl's command line: nouns, verbs and flags, from argv to one plain struct.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/ctl/views.h"
#include "shardline/v1/admin.pb.h"
#include "shardline/v1/inference.pb.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardline {

enum class CtlVerb {
  kStatus,
  kHealth,
  kNodeList,
  kNodeCordon,
  kNodeUncordon,
  kNodeDrain,
  kNodeRemove,
  kShardList,
  kModelList,
  kModelLoad,
  kModelPreview,
  kModelUnload,
  kSessionList,
  kSessionShow,
  kSessionCancel,
  kLedgerList,
  kLedgerVerify,
  kLedgerExport,
  kKeyNew,
  kGenerate,
  kShowVersion,
  kCompletion,
};

enum class ColorMode { kAuto, kAlways, kNever };

struct CtlCommand {
  CtlVerb verb = CtlVerb::kStatus;

  // Of every command.
  std::string endpoint = "127.0.0.1:7070";
  std::optional<absl::Duration> timeout;  // Not given: 10 s, and none for loads and answers.
  OutputFormat output = OutputFormat::kTable;
  bool no_headers = false;
  bool quiet = false;
  ColorMode color = ColorMode::kAuto;

  // Of some.
  std::string model;                // shard list, model unload.
  std::string node;                 // node cordon, node uncordon, node remove.
  v1::DrainNodeRequest drain;       // node drain.
  v1::LoadModelRequest load;        // model load; with --dry-run the verb is kModelPreview.
  v1::GenerateRequest generate;     // generate; the text "-" stands for stdin.
  bool chatml = false;              // Wrap that text as one user turn, behind
  std::string system;               // this system turn, if any.
  v1::CancelSessionRequest cancel;  // session cancel; session show takes its session.
  v1::ListRecordsRequest records;   // ledger list, ledger export.
  std::string file;                 // ledger export, key new; empty: stdout.
  std::string key_name;             // key new.
  bool key_admin = false;
  bool json_lines = false;   // generate --json.
  bool client_only = false;  // version --client.
  std::string shell;         // completion.
};

// Either a command, or a text and how to end.
struct ParsedCommandLine {
  std::optional<CtlCommand> command;
  std::string text;  // Help goes to stdout, an error to stderr.
  int exit_code = 0;
};

// `args` without the program's name. Reads SHARDLINE_* variables for what no flag gives.
ParsedCommandLine ParseCtlCommandLine(const std::vector<std::string>& args);

// The tree of commands alone, for completion scripts.
std::shared_ptr<CLI::App> CtlCommandTree();

}  // namespace shardline
