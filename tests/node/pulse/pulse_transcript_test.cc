// Runs the transcripts of testdata/ against a PulseCore and prints what it asks for. Times are
// milliseconds since the start; every command may name its own with `at`.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "node/pulse/pulse_core.h"
#include "tests/support/datadriven.h"

namespace shardline {
namespace {

using ::shardline::testing::Command;
using ::shardline::testing::RunTranscript;

std::string Render(const PulseActions& actions) {
  std::string out;
  for (const PulseConnection& connection : actions.hang_up) {
    absl::StrAppend(&out, "hang up ", connection.value(), "\n");
  }
  for (const PulseActions::Dial& dial : actions.dial) {
    absl::StrAppend(&out, "dial ", dial.connection.value(), ": ", dial.peer.node.value(), "/",
                    dial.peer.incarnation.value(), " at ", dial.address, "\n");
  }
  for (const PulseActions::Beat& beat : actions.beat) {
    absl::StrAppend(&out, "beat ", beat.number, " on ", beat.connection.value(), ", echo ",
                    beat.echo, "\n");
  }
  for (const PulseActions::Lost& lost : actions.lost) {
    absl::StrAppend(&out, "lost ", lost.peer.node.value(), ": ",
                    std::string(FailureKindName(lost.kind)), ", ", lost.reason, "\n");
  }
  for (const StagePeer& peer : actions.recovered) {
    absl::StrAppend(&out, "recovered ", peer.node.value(), "\n");
  }
  return out;
}

class Transcript {
 public:
  std::string Execute(const Command& command) {
    if (command.Has("at")) now_ms_ = static_cast<int64_t>(command.Number("at"));
    const Instant now = Instant::FromOrigin(absl::Milliseconds(now_ms_));
    const PulseConnection connection(command.Number("on"));
    const StagePeer peer = {NodeId(command.Text("peer", "b")),
                            Incarnation(command.Number("life", 1))};
    if (command.name == "want") {
      core_.OnPeerWanted(peer, command.Text("address", "b:1"), now);
    } else if (command.name == "gone") {
      core_.OnPeerGone(peer, now);
    } else if (command.name == "answer") {
      core_.OnAnswer(connection,
                     {.number = command.Number("number"),
                      .jobs_started = command.Number("started"),
                      .jobs_done = command.Number("done")},
                     now);
    } else if (command.name == "broken") {
      core_.OnStreamBroken(connection, absl::UnavailableError("connection refused"), now);
    } else if (command.name == "tick") {
      core_.OnTick(now);
    } else if (command.name == "live") {
      return Live(command);
    } else if (command.name == "silent") {
      std::string out;
      for (const SilentPeer& silent : core_.Silent(now)) {
        absl::StrAppend(&out, silent.peer.node.value(), " for ",
                        absl::FormatDuration(silent.silent), "\n");
      }
      return out.empty() ? "nobody" : out;
    } else {
      ADD_FAILURE() << "line " << command.line << ": no command " << command.name;
    }
    std::string out = Render(core_.TakeActions());
    if (command.Has("wake")) {
      absl::StrAppend(&out, "wake at ", absl::ToInt64Milliseconds(core_.NextWake().since_origin()),
                      "\n");
    }
    return out;
  }

 private:
  // Answers every beat of one peer 10 ms after it, until `until`; prints what is no beat.
  std::string Live(const Command& command) {
    std::string out;
    const auto until = static_cast<int64_t>(command.Number("until"));
    while (true) {
      const int64_t wake = absl::ToInt64Milliseconds(core_.NextWake().since_origin());
      if (wake > until) break;
      now_ms_ = wake;
      core_.OnTick(Instant::FromOrigin(absl::Milliseconds(now_ms_)));
      PulseActions actions = core_.TakeActions();
      const std::vector<PulseActions::Beat> beats = std::exchange(actions.beat, {});
      absl::StrAppend(&out, Render(actions));
      for (const PulseActions::Beat& beat : beats) {
        now_ms_ += 10;
        core_.OnAnswer(beat.connection,
                       {.number = beat.number,
                        .jobs_started = command.Number("started"),
                        .jobs_done = command.Number("done")},
                       Instant::FromOrigin(absl::Milliseconds(now_ms_)));
      }
    }
    return absl::StrCat(out, Render(core_.TakeActions()), "at ", now_ms_, "\n");
  }

  PulseCore core_{PulseOptions{}};
  int64_t now_ms_ = 0;
};

void RunFile(const std::string& name) {
  Transcript transcript;
  RunTranscript("tests/node/pulse/testdata/" + name,
                [&](const Command& command) { return transcript.Execute(command); });
}

TEST(PulseTranscriptTest, OnlyAnswersToNewerBeatsKeepAPeer) { RunFile("lease.txt"); }
TEST(PulseTranscriptTest, ADeathIsNoticedAtOnceAndACutCostsNothing) { RunFile("reset.txt"); }
TEST(PulseTranscriptTest, AWedgedExecutorIsNoticed) { RunFile("wedge.txt"); }
TEST(PulseTranscriptTest, AnOwnSleepIsNotHeldAgainstThePeers) { RunFile("own_sleep.txt"); }

}  // namespace
}  // namespace shardline
