#include "coordinator/ctl/shardctl.h"

#include <istream>
#include <iterator>
#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/version.h"
#include "coordinator/ctl/client.h"
#include "coordinator/ctl/command_line.h"
#include "coordinator/ctl/completion.h"
#include "coordinator/ctl/exit_code.h"
#include "coordinator/ctl/generate_output.h"
#include "coordinator/ctl/json_view.h"
#include "coordinator/ctl/ledger_export_file.h"
#include "coordinator/ctl/ledger_views.h"
#include "coordinator/ctl/load_progress.h"
#include "coordinator/ctl/views.h"
#include "coordinator/gateway/api_keys.h"

namespace shardline {
namespace {

constexpr absl::Duration kTimeoutDefault = absl::Seconds(10);
constexpr absl::Duration kDeadlineSlack = absl::Seconds(5);  // For the coordinator's own end.
constexpr absl::Duration kDrainSlack = absl::Seconds(30);    // For sessions to move.
constexpr absl::Duration kDeadlineDefault = absl::Minutes(2);

std::string ChatMl(const std::string& system, const std::string& prompt) {
  std::string text;
  if (!system.empty()) absl::StrAppend(&text, "<|im_start|>system\n", system, "<|im_end|>\n");
  return absl::StrCat(text, "<|im_start|>user\n", prompt, "<|im_end|>\n<|im_start|>assistant\n");
}

// One run of one command.
class Run {
 public:
  Run(const CtlCommand& command, const CtlTerminal& terminal)
      : command_(command), terminal_(terminal), client_(command.endpoint) {}

  ExitCode Execute() {
    switch (command_.verb) {
      case CtlVerb::kStatus:
        return Status();
      case CtlVerb::kHealth:
        return Health();
      case CtlVerb::kNodeList:
        return NodeList();
      case CtlVerb::kNodeCordon:
        return NodeCordon(true);
      case CtlVerb::kNodeUncordon:
        return NodeCordon(false);
      case CtlVerb::kNodeDrain:
        return NodeDrain();
      case CtlVerb::kNodeRemove:
        return NodeRemove();
      case CtlVerb::kShardList:
        return ShardList();
      case CtlVerb::kModelList:
        return ModelList();
      case CtlVerb::kModelLoad:
        return ModelLoad();
      case CtlVerb::kModelPreview:
        return ModelPreview();
      case CtlVerb::kModelUnload:
        return ModelUnload();
      case CtlVerb::kSessionList:
        return SessionList();
      case CtlVerb::kSessionShow:
        return SessionShow();
      case CtlVerb::kSessionCancel:
        return SessionCancel();
      case CtlVerb::kLedgerList:
        return LedgerList();
      case CtlVerb::kLedgerVerify:
        return LedgerVerify();
      case CtlVerb::kLedgerExport:
        return LedgerExport();
      case CtlVerb::kKeyNew:
        return KeyNew();
      case CtlVerb::kGenerate:
        return Generate();
      case CtlVerb::kShowVersion:
        return Version();
      case CtlVerb::kCompletion:
        *terminal_.out << CompletionScript(command_.shell);
        return ExitCode::kOk;
    }
    return ExitCode::kUsage;
  }

 private:
  absl::Duration timeout() const { return command_.timeout.value_or(kTimeoutDefault); }

  ViewOptions view() const {
    const bool color =
        command_.color == ColorMode::kAlways ||
        (command_.color == ColorMode::kAuto && terminal_.out_is_terminal && !terminal_.no_color);
    return {.format = command_.output,
            .headers = !command_.no_headers,
            .color = color,
            .columns = terminal_.columns};
  }

  ExitCode Fail(const absl::Status& status) {
    const bool json = command_.output == OutputFormat::kJson || command_.json_lines;
    const ErrorContext context = {
        .endpoint = command_.endpoint,
        .is_load = command_.verb == CtlVerb::kModelLoad || command_.verb == CtlVerb::kModelPreview,
        .is_node = command_.verb == CtlVerb::kNodeCordon ||
                   command_.verb == CtlVerb::kNodeUncordon || command_.verb == CtlVerb::kNodeDrain,
        .is_removal = command_.verb == CtlVerb::kNodeRemove,
        .is_session =
            command_.verb == CtlVerb::kSessionShow || command_.verb == CtlVerb::kSessionCancel};
    *terminal_.err << (json ? ErrorJson(status, context) : ErrorText(status, context));
    return ExitCodeOf(status);
  }

  ExitCode Status() {
    const absl::StatusOr<v1::ClusterStatus> status = client_.GetStatus(timeout());
    if (!status.ok()) return Fail(status.status());
    v1::NodeList nodes;
    if (status->nodes_lost() > 0) {
      absl::StatusOr<v1::NodeList> known = client_.ListNodes(timeout());
      if (known.ok()) nodes = *std::move(known);
    }
    *terminal_.out << StatusView(*status, nodes, command_.endpoint, view());
    return status->healthy() ? ExitCode::kOk : ExitCode::kNotHealthy;
  }

  ExitCode Health() {
    const absl::StatusOr<bool> serving = client_.IsServing(timeout());
    if (!serving.ok()) return Fail(serving.status());
    return *serving ? ExitCode::kOk : ExitCode::kNotHealthy;
  }

  ExitCode NodeList() {
    const absl::StatusOr<v1::NodeList> nodes = client_.ListNodes(timeout());
    if (!nodes.ok()) return Fail(nodes.status());
    *terminal_.out << NodeListView(*nodes, view());
    return ExitCode::kOk;
  }

  ExitCode NodeCordon(bool cordon) {
    const absl::StatusOr<v1::NodeSummary> node =
        client_.CordonNode(command_.node, cordon, timeout());
    if (!node.ok()) return Fail(node.status());
    *terminal_.out << command_.node << " " << DutyText(node->duty()) << "\n";
    return ExitCode::kOk;
  }

  ExitCode NodeDrain() {
    v1::DrainNodeRequest request = command_.drain;
    request.set_wait(false);
    absl::StatusOr<v1::NodeSummary> node = client_.DrainNode(request, timeout());
    if (!node.ok()) return Fail(node.status());
    if (!command_.quiet) {
      *terminal_.err << command_.node << " cordoned, " << node->sessions_running()
                     << " sessions run there";
      if (node->sessions_running() > 0) {
        *terminal_.err << "; what is left moves in "
                       << absl::FormatDuration(absl::Milliseconds(node->drain_left_ms()));
      }
      *terminal_.err << "\n";
    }
    if (command_.drain.wait() && node->duty() == v1::NODE_DUTY_DRAINING) {
      // The coordinator drains; this only watches.
      request.set_wait(true);
      const absl::Duration deadline = absl::Milliseconds(request.deadline_ms());
      node = client_.DrainNode(request, command_.timeout.value_or(deadline + kDrainSlack));
      if (!node.ok()) return Fail(node.status());
    }
    *terminal_.out << command_.node << " " << DutyText(node->duty()) << "\n";
    if (node->duty() != v1::NODE_DUTY_DRAINED) {
      return command_.drain.wait() ? ExitCode::kFailed : ExitCode::kOk;
    }
    if (!command_.quiet) {
      *terminal_.err << "it is safe to stop; undo: shardctl node uncordon " << command_.node
                     << "\n";
    }
    return ExitCode::kOk;
  }

  ExitCode NodeRemove() {
    const absl::StatusOr<v1::NodeSummary> node = client_.RemoveNode(command_.node, timeout());
    if (!node.ok()) return Fail(node.status());
    *terminal_.out << command_.node << " removed\n";
    return ExitCode::kOk;
  }

  ExitCode ModelList() {
    const absl::StatusOr<v1::ModelList> models = client_.ListModels(timeout());
    if (!models.ok()) return Fail(models.status());
    *terminal_.out << ModelListView(*models, view());
    return ExitCode::kOk;
  }

  ExitCode ShardList() {
    const absl::StatusOr<v1::ModelList> models = client_.ListModels(timeout());
    if (!models.ok()) return Fail(models.status());
    const absl::StatusOr<v1::ShardList> shards = client_.ListShards(command_.model, timeout());
    if (!shards.ok()) return Fail(shards.status());
    if (!command_.model.empty() && shards->shards().empty()) {
      return Fail(absl::NotFoundError(absl::StrCat("no model ", command_.model, " has shards")));
    }
    *terminal_.out << ShardListView(*shards, *models, view());
    return ExitCode::kOk;
  }

  ExitCode ModelLoad() {
    const Instant start = SystemClock()->Now();
    LoadProgress progress(terminal_.err, terminal_.err_is_terminal, terminal_.columns);
    v1::ModelSummary model;
    const absl::Status status =
        client_.LoadModel(command_.load, command_.timeout.value_or(absl::InfiniteDuration()),
                          [&](const v1::LoadModelEvent& event) {
                            model = event.model();
                            if (!command_.quiet) progress.Show(event, SystemClock()->Now() - start);
                          });
    progress.Done();
    if (!status.ok()) return Fail(status);
    if (command_.output == OutputFormat::kJson) {
      *terminal_.out << ModelJson(model);
    } else if (command_.output == OutputFormat::kName) {
      *terminal_.out << model.name() << "\n";
    } else {
      *terminal_.out << model.name() << " ready: " << model.layers() << " layers, context "
                     << model.context_tokens_max() << " tokens, plan " << model.plan_epoch()
                     << "\n";
    }
    return ExitCode::kOk;
  }

  ExitCode ModelPreview() {
    // A file that nobody has read before is read whole.
    const absl::StatusOr<v1::ModelPreview> preview =
        client_.PreviewModel(command_.load, command_.timeout.value_or(absl::InfiniteDuration()));
    if (!preview.ok()) return Fail(preview.status());
    *terminal_.out << ModelPreviewView(*preview, view());
    return preview->fits() ? ExitCode::kOk : ExitCode::kRefused;
  }

  ExitCode ModelUnload() {
    const absl::Status status = client_.UnloadModel(command_.model, timeout());
    if (!status.ok()) return Fail(status);
    if (!command_.quiet) *terminal_.err << command_.model << " unloaded\n";
    return ExitCode::kOk;
  }

  ExitCode SessionList() {
    const absl::StatusOr<v1::SessionList> sessions = client_.ListSessions(timeout());
    if (!sessions.ok()) return Fail(sessions.status());
    *terminal_.out << SessionListView(*sessions, view());
    return ExitCode::kOk;
  }

  ExitCode SessionShow() {
    const uint64_t id = command_.cancel.session();
    // In this order: one that ends in between is seen in one of the two.
    const absl::StatusOr<v1::SessionList> sessions = client_.ListSessions(timeout());
    if (!sessions.ok()) return Fail(sessions.status());
    const absl::StatusOr<v1::RecordList> records = client_.ListRecords(command_.records, timeout());
    if (!records.ok()) return Fail(records.status());
    std::optional<v1::SessionSummary> live;
    for (const v1::SessionSummary& session : sessions->sessions()) {
      if (session.session() == id) live = session;
    }
    if (!live.has_value() && records->records().empty()) {
      return Fail(absl::NotFoundError(absl::StrCat("no session ", id)));
    }
    *terminal_.out << SessionView(live, *records, view());
    return ExitCode::kOk;
  }

  ExitCode SessionCancel() {
    const absl::StatusOr<v1::CancelSessionReply> reply =
        client_.CancelSession(command_.cancel, timeout());
    if (!reply.ok()) return Fail(reply.status());
    *terminal_.out << "session " << command_.cancel.session() << " " << reply->outcome()
                   << ", epoch " << reply->epoch() << "\n";
    if (reply->outcome() == "cancelled") return ExitCode::kOk;
    if (!command_.quiet) *terminal_.err << "it had ended before\n";
    return ExitCode::kRefused;
  }

  ExitCode LedgerList() {
    const absl::StatusOr<v1::RecordList> records = client_.ListRecords(command_.records, timeout());
    if (!records.ok()) return Fail(records.status());
    *terminal_.out << RecordListView(*records, view());
    const auto shown = static_cast<uint64_t>(records->records_size());
    if (shown > 0 && shown < records->total() && !command_.quiet) {
      *terminal_.err << shown << " of " << records->total() << " records; more with --after "
                     << records->records(records->records_size() - 1).sequence() << "\n";
    }
    return ExitCode::kOk;
  }

  ExitCode LedgerVerify() {
    // A long ledger takes its time.
    const absl::StatusOr<v1::LedgerVerdict> verdict =
        client_.VerifyLedger(command_.timeout.value_or(absl::InfiniteDuration()));
    if (!verdict.ok()) return Fail(verdict.status());
    *terminal_.out << VerdictView(*verdict, view());
    return verdict->ok() ? ExitCode::kOk : ExitCode::kFailed;
  }

  ExitCode LedgerExport() {
    const bool json = command_.output == OutputFormat::kJson;
    LedgerExportFile file(command_.file, terminal_.out,
                          json ? ExportFormat::kJson : ExportFormat::kCsv);
    absl::Status status =
        client_.ExportRecords(command_.records, command_.timeout.value_or(absl::InfiniteDuration()),
                              [&file](const v1::LedgerRecord& record) { file.Add(record); });
    if (status.ok()) status = file.Finish();
    if (!status.ok()) return Fail(status);
    if (!command_.file.empty() && !command_.quiet) {
      *terminal_.err << file.records() << " records written to " << command_.file << "\n";
    }
    return ExitCode::kOk;
  }

  ExitCode KeyNew() {
    const absl::StatusOr<NewApiKey> key =
        MakeApiKey(command_.key_name, command_.key_admin ? KeyKind::kAdmin : KeyKind::kInference);
    if (!key.ok()) return Fail(key.status());
    if (!command_.file.empty()) {
      const absl::Status appended = AppendKeyLine(command_.file, key->line);
      if (!appended.ok()) return Fail(appended);
    }
    *terminal_.out << NewKeyView(key->secret, command_.file.empty() ? key->line : "", view());
    if (!command_.quiet) {
      *terminal_.err << "the key is shown this once"
                     << (command_.file.empty() ? "; its line is for the file of --api-keys\n"
                                               : "; its line is in " + command_.file + "\n");
    }
    return ExitCode::kOk;
  }

  ExitCode Generate() {
    v1::GenerateRequest request = command_.generate;
    if (request.text() == "-") {
      request.set_text(std::string(std::istreambuf_iterator<char>(*terminal_.in), {}));
    }
    if (command_.chatml) request.set_text(ChatMl(command_.system, request.text()));
    const absl::Duration deadline =
        request.deadline_ms() == 0 ? kDeadlineDefault : absl::Milliseconds(request.deadline_ms());
    v1::GenerateStarted started;
    v1::GenerateEnd end;
    const absl::Status status =
        client_.Generate(request, command_.timeout.value_or(deadline + kDeadlineSlack),
                         [&](const v1::GenerateEvent& event) {
                           if (event.has_started()) started = event.started();
                           if (event.has_end()) end = event.end();
                           if (command_.json_lines) {
                             *terminal_.out << EventJson(event, started);
                           } else if (event.has_token()) {
                             *terminal_.out << event.token().text();
                           } else if (event.has_end()) {
                             *terminal_.out << event.end().text() << "\n";
                           }
                           terminal_.out->flush();
                         });
    if (!status.ok()) {
      if (!command_.json_lines && started.session() != 0) *terminal_.out << std::endl;
      return Fail(status);
    }
    if (!command_.quiet) *terminal_.err << StatsText(started, end);
    return ExitCode::kOk;
  }

  ExitCode Version() {
    if (command_.client_only) {
      *terminal_.out << "shardctl " << kVersion << "\n";
      return ExitCode::kOk;
    }
    const absl::StatusOr<v1::ClusterStatus> status = client_.GetStatus(timeout());
    *terminal_.out << "shardctl " << kVersion << "\n";
    if (!status.ok()) return Fail(status.status());
    *terminal_.out << "coordinator " << status->version() << "\n";
    if (status->version() != kVersion && !command_.quiet) {
      *terminal_.err << "warning: client and coordinator differ\n";
    }
    return ExitCode::kOk;
  }

  const CtlCommand& command_;
  const CtlTerminal& terminal_;
  CtlClient client_;
};

}  // namespace

int RunShardctl(const std::vector<std::string>& args, const CtlTerminal& terminal) {
  const ParsedCommandLine parsed = ParseCtlCommandLine(args);
  if (!parsed.command.has_value()) {
    *(parsed.exit_code == 0 ? terminal.out : terminal.err) << parsed.text;
    return parsed.exit_code;
  }
  return static_cast<int>(Run(*parsed.command, terminal).Execute());
}

}  // namespace shardline
